import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageListener;
import jakarta.jms.TextMessage;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.jms.listener.DefaultMessageListenerContainer;

/**
 * An ordinary Spring program: some messages are received by JmsTemplate, which opens and closes a consumer for each; the
 * others by a transacted listener container that fails each message once, and "poison" always. Arguments: URI, user,
 * password, queue, its dead letter queue, cache level, failures that the broker allows. What came of it is printed, a
 * line for each thing.
 */
public final class SpringProgram {
    private static final int MESSAGES = 60;
    private static final int BY_TEMPLATE = 20;
    private static final String POISON = "poison";

    private SpringProgram() {}

    /** Fails each message once, and poison always. */
    private static final class Failing implements MessageListener {
        final Map<String, Integer> attempts = new ConcurrentHashMap<>();
        final Set<Integer> firstCounts = new ConcurrentSkipListSet<>();
        final CountDownLatch processed = new CountDownLatch(MESSAGES - BY_TEMPLATE);
        final CountDownLatch poisoned;

        Failing(int failures) {
            poisoned = new CountDownLatch(failures);
        }

        @Override
        public void onMessage(Message message) {
            String text = textOf(message);
            int attempt = attempts.merge(text, 1, Integer::sum);
            if (attempt == 1) {
                firstCounts.add(countOf(message));
            }
            if (text.equals(POISON)) {
                poisoned.countDown();
            }
            if (attempt == 1 || text.equals(POISON)) {
                throw new IllegalStateException("fails");
            }
            processed.countDown();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String queue = arguments[3];
        JmsConnectionFactory factory = new JmsConnectionFactory(arguments[1], arguments[2], arguments[0]);
        JmsTemplate template = new JmsTemplate(factory);
        template.setReceiveTimeout(10_000);
        for (int number = 0; number < MESSAGES; number++) {
            template.convertAndSend(queue, "message " + number);
        }
        template.convertAndSend(queue, POISON);

        Set<Integer> counts = new TreeSet<>();
        int received = 0;
        while (received < BY_TEMPLATE) {
            Message message = template.receive(queue);
            if (message == null) {
                break;
            }
            counts.add(countOf(message));
            received++;
        }
        System.out.println("template " + received);
        System.out.println("template-counts " + counts);

        Failing listener = new Failing(Integer.parseInt(arguments[6]));
        DefaultMessageListenerContainer container = new DefaultMessageListenerContainer();
        container.setConnectionFactory(factory);
        container.setDestinationName(queue);
        container.setSessionTransacted(true);
        container.setCacheLevelName(arguments[5]);
        container.setReceiveTimeout(200);
        container.setErrorHandler(failure -> {});
        container.setMessageListener(listener);
        container.afterPropertiesSet();
        container.start();
        boolean all = listener.processed.await(90, TimeUnit.SECONDS) && listener.poisoned.await(30, TimeUnit.SECONDS);
        container.shutdown();
        System.out.println("all " + all);
        System.out.println("processed " + (MESSAGES - BY_TEMPLATE - listener.processed.getCount()));
        System.out.println("first-counts " + listener.firstCounts);
        System.out.println("poison-attempts " + listener.attempts.get(POISON));

        Set<String> dead = new TreeSet<>();
        template.setReceiveTimeout(2_000);
        for (Message letter = template.receive(arguments[4]); letter != null; letter = template.receive(arguments[4])) {
            dead.add(textOf(letter));
        }
        System.out.println("dead " + dead);
        template.setReceiveTimeout(JmsTemplate.RECEIVE_TIMEOUT_NO_WAIT);
        System.out.println("left " + template.receive(queue));
    }

    private static String textOf(Message message) {
        try {
            return ((TextMessage) message).getText();
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    private static int countOf(Message message) {
        try {
            int count = message.getIntProperty("JMSXDeliveryCount");
            if (message.getJMSRedelivered() != count > 1) {
                throw new IllegalStateException("JMSRedelivered is not what JMSXDeliveryCount says");
            }
            return count;
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }
}
