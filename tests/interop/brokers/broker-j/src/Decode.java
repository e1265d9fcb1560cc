import java.util.HexFormat;
import java.util.Scanner;
import org.apache.qpid.server.bytebuffer.QpidByteBuffer;
import org.apache.qpid.server.protocol.v1_0.codec.ValueHandler;
import org.apache.qpid.server.protocol.v1_0.type.codec.AMQPDescribedTypeRegistry;

/** Reads AMQP values with Broker-J's codec: each line of standard input is one, in hex, and each is answered by a line. */
public final class Decode {
    private Decode() {}

    public static void main(String[] arguments) {
        ValueHandler handler = new ValueHandler(AMQPDescribedTypeRegistry.newInstance()
                .registerTransportLayer()
                .registerMessagingLayer()
                .registerTransactionLayer()
                .registerSecurityLayer());
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            QpidByteBuffer bytes = QpidByteBuffer.wrap(HexFormat.of().parseHex(lines.nextLine()));
            try {
                System.out.println(handler.parse(bytes));
            } catch (Exception error) {
                System.out.println("refused: " + error);
            }
        }
    }
}
