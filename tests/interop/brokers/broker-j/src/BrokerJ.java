import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.qpid.server.SystemLauncher;
import org.apache.qpid.server.SystemLauncherListener;
import org.apache.qpid.server.model.Broker;
import org.apache.qpid.server.model.Exchange;
import org.apache.qpid.server.model.Queue;
import org.apache.qpid.server.model.SystemConfig;
import org.apache.qpid.server.model.VirtualHost;
import org.apache.qpid.server.model.port.AmqpPort;

/**
 * Qpid Broker-J with the configuration of initial.json: one virtual host that keeps its messages in Derby. Arguments:
 * the folder of its data, the port (0: any), the file of the configuration.
 */
public final class BrokerJ implements Orders.Broker {
    private final SystemLauncher launcher;
    private SystemConfig<?> system;

    public static void main(String[] arguments) throws Exception {
        Orders.begin();
        BrokerJ broker = new BrokerJ(Path.of(arguments[0]), arguments[1], arguments[2]);
        AmqpPort<?> port = (AmqpPort<?>) broker.broker().getPorts().iterator().next();
        Orders.obey(broker, port.getBoundPort());
    }

    private BrokerJ(Path folder, String port, String configuration) throws Exception {
        System.setProperty("derby.stream.error.file", folder.resolve("derby.log").toString());
        launcher = new SystemLauncher(new SystemLauncherListener.DefaultSystemLauncherListener() {
            @Override
            public void onContainerResolve(SystemConfig<?> config) {
                system = config;
            }
        });
        Map<String, Object> attributes = new HashMap<>();
        attributes.put("type", "JSON");
        attributes.put("initialConfigurationLocation", configuration);
        attributes.put("startupLoggedToSystemOut", "false");
        attributes.put("context", Map.of("qpid.work_dir", folder.toString(), "acquit.port", port));
        launcher.startup(attributes);
    }

    private Broker<?> broker() {
        return (Broker<?>) system.getContainer();
    }

    private VirtualHost<?> host() {
        return (VirtualHost<?>) broker().getVirtualHostNodes().iterator().next().getVirtualHost();
    }

    @Override
    public void queue(String name, int maxDeliveryAttempts, String deadLetter) throws Exception {
        if (host().getChildByName(Queue.class, name) != null) {
            return;
        }
        Map<String, Object> attributes = new HashMap<>();
        attributes.put("name", name);
        attributes.put("durable", true);
        if (maxDeliveryAttempts > 0) {
            attributes.put("maximumDeliveryAttempts", maxDeliveryAttempts);
        }
        if (deadLetter != null) {
            queue(deadLetter, 0, null);
            attributes.put("alternateBinding", Map.of("destination", deadLetter));
        }
        host().createChild(Queue.class, attributes);
    }

    @Override
    public void topic(String name) throws Exception {
        if (host().getChildByName(Exchange.class, name) == null) {
            host().createChild(Exchange.class, Map.of("name", name, "type", "fanout", "durable", true));
        }
    }

    @Override
    public void stop() {
        launcher.shutdown();
    }
}
