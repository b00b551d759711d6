import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSConsumer;
import jakarta.jms.Queue;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.Topic;

// The JMS library of Service Bus, unmodified. Argument: the connection string. Lines of "check TAB what it saw".
public class JavaMessageService {
  private static final long PATIENCE = 20_000;

  public static void main(String[] arguments) throws Exception {
    ServiceBusJmsConnectionFactory factory = new ServiceBusJmsConnectionFactory(arguments[0], null);
    try (JMSContext context = factory.createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
      Queue queue = context.createQueue("jms-named");
      context.createProducer().send(queue, "one");
      try (JMSConsumer consumer = context.createConsumer(queue)) {
        say("named queue", consumer.receiveBody(String.class, PATIENCE));
      }
      Topic topic = context.createTopic("jms-news");
      try (JMSConsumer consumer = context.createConsumer(topic, "n > 1")) {
        context.createProducer().setProperty("n", 1).send(topic, "passed over");
        context.createProducer().setProperty("n", 2).send(topic, "published");
        say("named topic", consumer.receiveBody(String.class, PATIENCE));
      }
      TemporaryQueue replies = context.createTemporaryQueue();
      context.createProducer().send(replies, "reply");
      try (JMSConsumer consumer = context.createConsumer(replies)) {
        say("temporary queue", consumer.receiveBody(String.class, PATIENCE));
      }
      replies.delete();
      say("deleted", "true");
    }
    System.exit(0);
  }

  private static void say(String check, String saw) {
    System.out.println(check + "\t" + saw);
  }
}
