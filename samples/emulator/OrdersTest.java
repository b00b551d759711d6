import com.azure.messaging.servicebus.*;
import java.util.regex.*;

public class OrdersTest {
    public static void main(String[] args) throws Exception {
        Process broker = new ProcessBuilder(
            "sbpair", "broker", "--namespace", "test:0", "--queue", "test/orders", "--json").start();
        try {
            Matcher line = Pattern.compile("\"connection_string\": \"([^\"]*)\"").matcher(broker.inputReader().readLine());
            if (!line.find()) throw new AssertionError("the broker did not start");
            ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(line.group(1));
            try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient();
                 ServiceBusReceiverClient receiver = builder.receiver().queueName("orders").buildClient()) {
                sender.sendMessage(new ServiceBusMessage("two shoes"));
                String body = receiver.receiveMessages(1).iterator().next().getBody().toString();
                if (!body.equals("two shoes")) throw new AssertionError(body);
            }
        } finally {
            broker.destroy();
        }
        System.out.println("ok");
        System.exit(0); // the SDK's threads would keep the process for a while
    }
}
