import com.azure.messaging.servicebus.*;
import java.util.regex.*;

public class OrdersTest {
    public static void main(String[] args) throws Exception {
        // its input is a pipe, which closes when this process ends; what it says is shown
        Process broker = new ProcessBuilder(
            "sbpair", "broker", "--namespace", "test:0", "--queue", "test/orders", "--json", "--stop-with-stdin")
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            String started = broker.inputReader().readLine();
            if (started == null) throw new AssertionError("the broker did not start: it says why above");
            Matcher line = Pattern.compile("\"connection_string\": \"([^\"]*)\"").matcher(started);
            if (!line.find()) throw new AssertionError(started);
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
