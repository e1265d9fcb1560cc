import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.core.config.Configuration;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.remoting.impl.netty.NettyAcceptor;
import org.apache.activemq.artemis.core.security.Role;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.core.server.impl.AddressInfo;
import org.apache.activemq.artemis.core.settings.impl.AddressSettings;
import org.apache.activemq.artemis.spi.core.security.ActiveMQJAASSecurityManager;

/**
 * Artemis with the configuration that its `artemis create` gives out, as far as AMQP can see it: durable, DLQ and
 * ExpiryQueue, ten attempts. Arguments: the folder of its data, the port (0: any).
 */
public final class ArtemisBroker implements Orders.Broker {
    private final EmbeddedActiveMQ embedded = new EmbeddedActiveMQ();

    public static void main(String[] arguments) throws Exception {
        Orders.begin();
        ArtemisBroker broker = new ArtemisBroker(Path.of(arguments[0]), Integer.parseInt(arguments[1]));
        NettyAcceptor acceptor =
                (NettyAcceptor) broker.embedded.getActiveMQServer().getRemotingService().getAcceptor("amqp");
        Orders.obey(broker, acceptor.getActualPort());
    }

    private ArtemisBroker(Path folder, int port) throws Exception {
        Configuration configuration = new ConfigurationImpl()
                .setPersistenceEnabled(true)
                .setJournalType(JournalType.NIO)
                .setJournalDirectory(folder.resolve("journal").toString())
                .setBindingsDirectory(folder.resolve("bindings").toString())
                .setLargeMessagesDirectory(folder.resolve("large").toString())
                .setPagingDirectory(folder.resolve("paging").toString())
                .setNodeManagerLockDirectory(folder.resolve("journal").toString())
                .setJournalFileSize(Integer.getInteger("acquit.journalFileBytes", 1024 * 1024))
                .setJMXManagementEnabled(false)
                .setCriticalAnalyzer(false)
                // How full the disk of a developer's machine is must not stop a test.
                .setMaxDiskUsage(-1)
                .addAcceptorConfiguration(
                        "amqp",
                        "tcp://127.0.0.1:" + port
                                + "?protocols=AMQP;saslMechanisms=SCRAM-SHA-256,PLAIN;saslLoginConfigScope=scram")
                .putSecurityRoles("#", everything());
        configuration.addAddressSetting("#", settings(10, "DLQ"));
        for (String each : new String[] {"DLQ", "ExpiryQueue"}) {
            configuration.addQueueConfiguration(anycast(each));
        }
        embedded.setConfiguration(configuration);
        embedded.setSecurityManager(users(folder));
        embedded.start();
    }

    private static AddressSettings settings(int maxDeliveryAttempts, String deadLetter) {
        return new AddressSettings()
                .setMaxDeliveryAttempts(maxDeliveryAttempts)
                .setDeadLetterAddress(SimpleString.of(deadLetter))
                .setExpiryAddress(SimpleString.of("ExpiryQueue"));
    }

    private static Set<Role> everything() {
        boolean yes = true;
        Set<Role> roles = new HashSet<>();
        roles.add(new Role("all", yes, yes, yes, yes, yes, yes, yes, yes, yes, yes, yes, yes));
        return roles;
    }

    private static QueueConfiguration anycast(String name) {
        return QueueConfiguration.of(name).setAddress(name).setRoutingType(RoutingType.ANYCAST).setDurable(true);
    }

    /** One user, "ann" with the password "correct horse", by either mechanism. */
    private static ActiveMQJAASSecurityManager users(Path folder) throws Exception {
        Files.createDirectories(folder);
        Files.writeString(folder.resolve("users.properties"), "ann = correct horse\n");
        Files.writeString(folder.resolve("roles.properties"), "all = ann\n");
        Map<String, String> options = new HashMap<>();
        options.put("baseDir", folder.toString());
        options.put("org.apache.activemq.jaas.properties.user", "users.properties");
        options.put("org.apache.activemq.jaas.properties.role", "roles.properties");
        javax.security.auth.login.Configuration.setConfiguration(new javax.security.auth.login.Configuration() {
            @Override
            public AppConfigurationEntry[] getAppConfigurationEntry(String name) {
                String module = name.equals("scram") ? "SCRAMPropertiesLoginModule" : "PropertiesLoginModule";
                String classes = "org.apache.activemq.artemis.spi.core.security.jaas.";
                return new AppConfigurationEntry[] {
                    new AppConfigurationEntry(classes + module, LoginModuleControlFlag.SUFFICIENT, options),
                    // Who has come in by SCRAM has no password to show again.
                    new AppConfigurationEntry(
                            classes + "SCRAMLoginModule", LoginModuleControlFlag.SUFFICIENT, new HashMap<>())
                };
            }
        });
        return new ActiveMQJAASSecurityManager("plain");
    }

    @Override
    public void queue(String name, int maxDeliveryAttempts, String deadLetter) throws Exception {
        var server = embedded.getActiveMQServer();
        if (maxDeliveryAttempts > 0 || deadLetter != null) {
            String where = deadLetter == null ? "DLQ" : deadLetter;
            int attempts = maxDeliveryAttempts > 0 ? maxDeliveryAttempts : 10;
            server.getAddressSettingsRepository().addMatch(name, settings(attempts, where));
        }
        server.createQueue(anycast(name), true);
    }

    @Override
    public void topic(String name) throws Exception {
        embedded.getActiveMQServer().addOrUpdateAddressInfo(new AddressInfo(SimpleString.of(name), RoutingType.MULTICAST));
    }

    @Override
    public void stop() throws Exception {
        embedded.stop();
    }
}
