import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;

public class Emulator {
    public static void main(String[] args) {
        ServiceBusClientBuilder builder =
            new ServiceBusClientBuilder().connectionString(System.getenv("SBPAIR_PRIMARY"));
        try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient();
             ServiceBusReceiverClient receiver = builder.receiver().queueName("orders").buildClient()) {
            sender.sendMessage(new ServiceBusMessage("hello from Java"));
            for (ServiceBusReceivedMessage message : receiver.receiveMessages(1)) {
                System.out.println("received: " + message.getBody());
                receiver.complete(message);
            }
        }
        System.exit(0); // the SDK's threads would keep the process for a while
    }
}
