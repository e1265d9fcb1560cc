import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/** What a broker is told on standard input, line by line; see ../README.md. */
final class Orders {
    /** What any broker can do for a test. */
    interface Broker {
        /** Makes a durable queue; 0 and null leave the broker's own defaults. */
        void queue(String name, int maxDeliveryAttempts, String deadLetter) throws Exception;

        void topic(String name) throws Exception;

        void stop() throws Exception;
    }

    /** The real standard output: libraries print what they like to the other one. */
    static final PrintStream OUT = System.out;

    private Orders() {}

    /** Standard output belongs to the orders from now on. */
    static void begin() {
        System.setOut(System.err);
    }

    /** Says where the broker listens, obeys until standard input ends, and then stops in order. */
    static void obey(Broker broker, int port) throws Exception {
        say("listening " + port);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                perform(broker, line.split(" "));
                say("done");
            } catch (Exception problem) {
                say("failed " + problem.toString().replace('\n', ' '));
            }
        }
        broker.stop();
        System.exit(0);
    }

    private static void perform(Broker broker, String[] words) throws Exception {
        switch (words[0]) {
            case "queue" -> broker.queue(words[1], Integer.parseInt(words[2]), words.length > 3 ? words[3] : null);
            case "topic" -> broker.topic(words[1]);
            default -> throw new IOException("no order " + words[0] + "; expected queue or topic");
        }
    }

    private static void say(String line) {
        OUT.println(line);
        OUT.flush();
    }
}
