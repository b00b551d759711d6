// The Java SDK, unmodified, as one of several consumers: completes what it receives until stdin ends.
// Prints "ready", then the id of each completed message, a line each. Arguments: the connection string, the queue,
// and "sessions" if the queue requires them.

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import java.util.function.Consumer;

public class JavaConsumer {
    public static void main(String[] args) throws Exception {
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(args[0]);
        Consumer<ServiceBusReceivedMessageContext> handle = context -> {
            context.complete();
            System.out.println(context.getMessage().getMessageId());
        };
        boolean inSessions = args.length > 2 && args[2].equals("sessions");
        ServiceBusProcessorClient processor = inSessions
            ? builder.sessionProcessor().queueName(args[1]).maxConcurrentSessions(1).disableAutoComplete()
                .processMessage(handle).processError(context -> { }).buildProcessorClient()
            : builder.processor().queueName(args[1]).maxConcurrentCalls(1).prefetchCount(0).disableAutoComplete()
                .processMessage(handle).processError(context -> { }).buildProcessorClient();
        processor.start();
        System.out.println("ready");
        while (System.in.read() >= 0) { }
        System.exit(0); // the SDK's threads need not be waited for
    }
}
