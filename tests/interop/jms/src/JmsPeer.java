import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.Topic;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsConnectionListener;
import org.apache.qpid.jms.message.JmsInboundMessageDispatch;

/**
 * Qpid JMS, driven by lines of JSON: see README.md beside this program's folder.
 *
 * <p>Every command is answered under its number, from a thread of its own: whoever gives two commands to one session at
 * once knows what JMS allows. What a command makes is kept under a handle until {@code reset}.
 */
public final class JmsPeer {
    private interface Command {
        JsonElement perform(JsonObject fields) throws Exception;
    }

    private static final Gson GSON = new GsonBuilder().serializeNulls().serializeSpecialFloatingPointValues().create();
    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final AtomicLong handles = new AtomicLong();
    private final Map<Long, Object> objects = new ConcurrentHashMap<>();
    private final Map<String, Command> commands = new HashMap<>();

    private JmsPeer() {
        commands.put("connect", this::connect);
        commands.put("start", fields -> nothing(() -> the(Connection.class, fields, "connection").start()));
        commands.put("stop", fields -> nothing(() -> the(Connection.class, fields, "connection").stop()));
        commands.put("session", fields -> kept(the(Connection.class, fields, "connection")
                .createSession(fields.get("mode").getAsInt())));
        commands.put("producer", fields -> kept(session(fields).createProducer(destination(fields))));
        commands.put("send", this::send);
        commands.put("consumer", fields -> kept(session(fields)
                .createConsumer(destination(fields), text(fields, "selector"), flag(fields, "no_local"))));
        commands.put("durable", fields -> kept(session(fields).createDurableConsumer(
                (Topic) destination(fields), text(fields, "name"), text(fields, "selector"), flag(fields, "no_local"))));
        commands.put("shared", fields -> kept(session(fields).createSharedConsumer(
                (Topic) destination(fields), text(fields, "name"), text(fields, "selector"))));
        commands.put("shared_durable", fields -> kept(session(fields).createSharedDurableConsumer(
                (Topic) destination(fields), text(fields, "name"), text(fields, "selector"))));
        commands.put("unsubscribe", fields -> nothing(() -> session(fields).unsubscribe(text(fields, "name"))));
        commands.put("receive", this::receive);
        commands.put("listen", this::listen);
        commands.put("browser", fields -> kept(session(fields)
                .createBrowser((Queue) destination(fields), text(fields, "selector"))));
        commands.put("browse", this::browse);
        commands.put("acknowledge", this::acknowledge);
        commands.put("recover", fields -> nothing(() -> session(fields).recover()));
        commands.put("commit", fields -> nothing(() -> session(fields).commit()));
        commands.put("rollback", fields -> nothing(() -> session(fields).rollback()));
        commands.put("temporary_queue", fields -> named(session(fields).createTemporaryQueue()));
        commands.put("temporary_topic", fields -> named(session(fields).createTemporaryTopic()));
        commands.put("delete", this::delete);
        commands.put("close", fields -> nothing(() -> ((AutoCloseable) the(Object.class, fields, "object")).close()));
        commands.put("reset", this::reset);
    }

    // ---- lines

    private void say(JsonObject line) {
        synchronized (out) {
            out.println(GSON.toJson(line));
        }
    }

    private void report(String event, String source, long handle, JsonObject more) {
        more.addProperty("event", event);
        more.addProperty(source, handle);
        say(more);
    }

    private void perform(JsonObject line) {
        JsonObject answer = new JsonObject();
        answer.add("answer", line.get("number"));
        try {
            answer.add("result", commands.get(line.get("do").getAsString()).perform(line));
        } catch (Exception exception) {
            answer.add("error", described(exception));
        }
        say(answer);
    }

    private static JsonObject described(Throwable exception) {
        JsonObject json = new JsonObject();
        json.addProperty("class", lineage(exception.getClass()));
        json.addProperty("text", String.valueOf(exception.getMessage()));
        return json;
    }

    /** Its name, and after it those of its parents up to the one that JMS knows. */
    private static String lineage(Class<?> kind) {
        boolean known = !kind.getName().startsWith("org.apache.qpid.");
        return kind.getSimpleName() + (known ? "" : " is " + lineage(kind.getSuperclass()));
    }

    // ---- fields of commands

    private <T> T the(Class<T> kind, JsonObject fields, String field) {
        return kind.cast(objects.get(fields.get(field).getAsLong()));
    }

    private Session session(JsonObject fields) {
        return the(Session.class, fields, "session");
    }

    private static String text(JsonObject fields, String name) {
        return fields.has(name) && !fields.get(name).isJsonNull() ? fields.get(name).getAsString() : null;
    }

    private static boolean flag(JsonObject fields, String name) {
        return fields.has(name) && fields.get(name).getAsBoolean();
    }

    /** {@code "queue:NAME"}, {@code "topic:NAME"}, or the handle of a temporary one or of a received reply-to. */
    private Destination destination(JsonObject fields) throws JMSException {
        return destination(fields, "destination");
    }

    private Destination destination(JsonObject fields, String field) throws JMSException {
        if (!fields.has(field) || fields.get(field).isJsonNull()) {
            return null;
        }
        if (fields.get(field).getAsJsonPrimitive().isNumber()) {
            return the(Destination.class, fields, field);
        }
        String text = fields.get(field).getAsString();
        String name = text.substring(text.indexOf(':') + 1);
        return text.startsWith("queue:") ? session(fields).createQueue(name) : session(fields).createTopic(name);
    }

    // ---- results

    private long keep(Object made) {
        long handle = handles.incrementAndGet();
        objects.put(handle, made);
        return handle;
    }

    private JsonElement kept(Object made) {
        JsonObject json = new JsonObject();
        json.addProperty("handle", keep(made));
        return json;
    }

    private JsonElement named(Destination made) throws JMSException {
        JsonObject json = kept(made).getAsJsonObject();
        json.addProperty("name", Messages.name(made));
        return json;
    }

    private interface Action {
        void run() throws Exception;
    }

    private static JsonElement nothing(Action action) throws Exception {
        action.run();
        return new JsonObject();
    }

    private JsonObject arrived(Message message) throws JMSException {
        JsonObject json = Messages.toJson(message);
        json.addProperty("handle", keep(message));
        if (message.getJMSReplyTo() != null) {
            json.addProperty("reply_to_handle", keep(message.getJMSReplyTo()));
        }
        return json;
    }

    // ---- commands

    private JsonElement connect(JsonObject fields) throws JMSException {
        JmsConnectionFactory factory = new JmsConnectionFactory(text(fields, "uri"));
        String user = text(fields, "user");
        JmsConnection connection = (JmsConnection)
                (user == null ? factory.createConnection() : factory.createConnection(user, text(fields, "password")));
        long handle = keep(connection);
        connection.setExceptionListener(
                exception -> report("exception", "connection", handle, described(exception)));
        connection.addConnectionListener(new Listener(handle));
        try {
            if (text(fields, "client_id") != null) {
                connection.setClientID(text(fields, "client_id"));
            }
            if (flag(fields, "start")) {
                connection.start();
            }
        } catch (JMSException exception) {
            objects.remove(handle);
            connection.close();
            throw exception;
        }
        JsonObject json = new JsonObject();
        json.addProperty("handle", handle);
        return json;
    }

    private final class Listener implements JmsConnectionListener {
        private final long connection;

        Listener(long connection) {
            this.connection = connection;
        }

        private void say(String event, Throwable cause) {
            report(event, "connection", connection, cause == null ? new JsonObject() : described(cause));
        }

        @Override
        public void onConnectionEstablished(URI remote) {}

        @Override
        public void onConnectionFailure(Throwable error) {
            say("failed", error);
        }

        @Override
        public void onConnectionInterrupted(URI remote) {
            say("interrupted", null);
        }

        @Override
        public void onConnectionRestored(URI remote) {
            say("restored", null);
        }

        @Override
        public void onInboundMessage(JmsInboundMessageDispatch envelope) {}

        @Override
        public void onSessionClosed(Session session, Throwable cause) {
            say("session_closed", cause);
        }

        @Override
        public void onConsumerClosed(MessageConsumer consumer, Throwable cause) {
            say("consumer_closed", cause);
        }

        @Override
        public void onProducerClosed(MessageProducer producer, Throwable cause) {
            say("producer_closed", cause);
        }
    }

    private JsonElement send(JsonObject fields) throws JMSException {
        MessageProducer producer = the(MessageProducer.class, fields, "producer");
        if (fields.has("delivery_delay")) {
            producer.setDeliveryDelay(fields.get("delivery_delay").getAsLong());
        }
        Destination replyTo = destination(fields, "reply_to");
        Destination destination = destination(fields);
        JsonArray sent = new JsonArray();
        for (JsonElement given : fields.getAsJsonArray("messages")) {
            Message message = Messages.toMessage(session(fields), given.getAsJsonObject(), replyTo);
            int mode = fields.get("delivery_mode").getAsInt();
            int priority = fields.get("priority").getAsInt();
            long ttl = fields.get("ttl").getAsLong();
            if (flag(fields, "listen")) {
                producer.send(message, mode, priority, ttl, new Completion(fields.get("producer").getAsLong()));
            } else if (destination == null) {
                producer.send(message, mode, priority, ttl);
            } else {
                producer.send(destination, message, mode, priority, ttl);
            }
            sent.add(Messages.headers(message));
        }
        return sent;
    }

    private final class Completion implements CompletionListener {
        private final long producer;

        Completion(long producer) {
            this.producer = producer;
        }

        @Override
        public void onCompletion(Message message) {
            report("completed", "producer", producer, identity(message));
        }

        @Override
        public void onException(Message message, Exception exception) {
            JsonObject more = identity(message);
            more.add("error", described(exception));
            report("refused", "producer", producer, more);
        }

        private JsonObject identity(Message message) {
            JsonObject json = new JsonObject();
            try {
                json.addProperty("id", message.getJMSMessageID());
            } catch (JMSException exception) {
                json.add("error", described(exception));
            }
            return json;
        }
    }

    /** Up to {@code count} messages, each within {@code timeout} ms after the one before. */
    private JsonElement receive(JsonObject fields) throws JMSException {
        MessageConsumer consumer = the(MessageConsumer.class, fields, "consumer");
        JsonArray received = new JsonArray();
        long timeout = fields.get("timeout").getAsLong();
        for (int left = fields.get("count").getAsInt(); left > 0; left--) {
            // receive(0) waits for ever.
            Message message = timeout == 0 ? consumer.receiveNoWait() : consumer.receive(timeout);
            if (message == null) {
                break;
            }
            received.add(arrived(message));
        }
        return received;
    }

    /** Each message becomes an event; of the first {@code failures} calls each ends in an exception. */
    private JsonElement listen(JsonObject fields) throws JMSException {
        AtomicInteger failures = new AtomicInteger(fields.get("failures").getAsInt());
        long handle = fields.get("consumer").getAsLong();
        the(MessageConsumer.class, fields, "consumer").setMessageListener(message -> {
            try {
                report("message", "consumer", handle, arrived(message));
            } catch (JMSException exception) {
                report("exception", "consumer", handle, described(exception));
            }
            if (failures.getAndDecrement() > 0) {
                throw new IllegalStateException("as the test wants it");
            }
        });
        return new JsonObject();
    }

    private JsonElement browse(JsonObject fields) throws JMSException {
        JsonArray found = new JsonArray();
        Enumeration<?> messages = the(QueueBrowser.class, fields, "browser").getEnumeration();
        while (messages.hasMoreElements()) {
            found.add(arrived((Message) messages.nextElement()));
        }
        return found;
    }

    private JsonElement acknowledge(JsonObject fields) throws JMSException {
        Message message = the(Message.class, fields, "message");
        if (fields.has("outcome")) {
            message.setIntProperty("JMS_AMQP_ACK_TYPE", fields.get("outcome").getAsInt());
        }
        message.acknowledge();
        return new JsonObject();
    }

    private JsonElement delete(JsonObject fields) throws JMSException {
        Destination destination = the(Destination.class, fields, "destination");
        if (destination instanceof TemporaryQueue) {
            ((TemporaryQueue) destination).delete();
        } else {
            ((TemporaryTopic) destination).delete();
        }
        return new JsonObject();
    }

    /** Close every connection and forget every handle: the next test begins with nothing. */
    private JsonElement reset(JsonObject fields) {
        for (Object object : objects.values()) {
            if (object instanceof Connection) {
                try {
                    ((Connection) object).close();
                } catch (JMSException exception) {
                    // Its broker may have been killed by the test.
                }
            }
        }
        objects.clear();
        return new JsonObject();
    }

    public static void main(String[] arguments) throws Exception {
        JmsPeer peer = new JmsPeer();
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject command = JsonParser.parseString(line).getAsJsonObject();
            workers.execute(() -> peer.perform(command));
        }
        System.exit(0);
    }
}
