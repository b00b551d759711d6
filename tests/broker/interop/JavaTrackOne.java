import com.microsoft.azure.servicebus.ClientFactory;
import com.microsoft.azure.servicebus.IMessage;
import com.microsoft.azure.servicebus.IMessageReceiver;
import com.microsoft.azure.servicebus.IMessageSender;
import com.microsoft.azure.servicebus.IMessageSession;
import com.microsoft.azure.servicebus.Message;
import com.microsoft.azure.servicebus.QueueClient;
import com.microsoft.azure.servicebus.ReceiveMode;
import com.microsoft.azure.servicebus.primitives.ConnectionStringBuilder;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.stream.Collectors;

// The Java SDK of Track 1, unmodified. Arguments: the connection string, a queue, a topic, a queue of sessions. Lines of "check TAB what it saw".
public class JavaTrackOne {
  private static final Duration PATIENCE = Duration.ofSeconds(20);

  public static void main(String[] arguments) throws Exception {
    String connection = arguments[0];
    String queue = arguments[1];
    String topic = arguments[2];
    IMessageSender sender =
        ClientFactory.createMessageSenderFromConnectionStringBuilder(new ConnectionStringBuilder(connection, queue));
    sender.send(new Message("one"));
    IMessageReceiver receiver = ClientFactory.createMessageReceiverFromConnectionStringBuilder(
        new ConnectionStringBuilder(connection, queue), ReceiveMode.PEEKLOCK);
    IMessage message = receiver.receive(PATIENCE);
    say("received", text(message));
    receiver.defer(message.getLockToken());
    IMessage deferred = receiver.receiveDeferredMessage(message.getSequenceNumber());
    say("deferred", text(deferred) + " " + deferred.getDeliveryCount());
    receiver.complete(deferred.getLockToken());
    say("peeked", String.valueOf(receiver.peek()));
    say("queue client on a topic", onTopic(connection, topic));
    receiver.close();
    sender.close();
    say("sessions", sessions(connection, arguments[3]));
    System.exit(0);
  }

  private static String sessions(String connection, String queue) throws Exception {
    QueueClient client = new QueueClient(new ConnectionStringBuilder(connection, queue), ReceiveMode.PEEKLOCK);
    for (String session : new String[] {"a", "b"}) {
      Message message = new Message("one");
      message.setSessionId(session);
      client.send(message);
    }
    Method listed = QueueClient.class.getDeclaredMethod("getMessageSessions"); // its own tests stand in its package
    listed.setAccessible(true);
    String found = ((Collection<?>) listed.invoke(client)).stream()
        .map(each -> ((IMessageSession) each).getSessionId()).sorted().collect(Collectors.joining(" "));
    client.close();
    return found;
  }

  private static String onTopic(String connection, String topic) {
    try {
      new QueueClient(new ConnectionStringBuilder(connection, topic), ReceiveMode.PEEKLOCK).send(new Message("no"));
      return "accepted";
    } catch (Exception refusal) {
      return refusal.getClass().getSimpleName();
    }
  }

  @SuppressWarnings("deprecation")
  private static String text(IMessage message) {
    return new String(message.getBody(), StandardCharsets.UTF_8);
  }

  private static void say(String check, String saw) {
    System.out.println(check + "\t" + saw);
  }
}
