import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import jakarta.jms.JMSContext;
import jakarta.jms.JMSConsumer;
import jakarta.jms.JMSRuntimeException;
import jakarta.jms.Message;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TemporaryTopic;
import jakarta.jms.Topic;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;

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
      TemporaryTopic passing = context.createTemporaryTopic();
      try (JMSConsumer consumer = context.createConsumer(passing)) {
        context.createProducer().send(passing, "passing news");
        say("temporary topic", consumer.receiveBody(String.class, PATIENCE));
      }
      browse(context);
      share(context, topic);
    }
    try (JMSContext context = factory.createContext(JMSContext.AUTO_ACKNOWLEDGE)) {
      context.setClientID("auditor");
      keep(context, context.createTopic("jms-kept"));
    }
    System.exit(0);
  }

  private static void browse(JMSContext context) throws Exception {
    Queue queue = context.createQueue("jms-browsed");
    context.createProducer().send(queue, "a").send(queue, "b");
    List<String> seen = new ArrayList<>();
    try (QueueBrowser browser = context.createBrowser(queue)) {
      Enumeration<?> found = browser.getEnumeration();
      while (found.hasMoreElements()) {
        seen.add(((Message) found.nextElement()).getBody(String.class));
      }
    }
    try (JMSConsumer consumer = context.createConsumer(queue)) {
      say("browsed", seen + " then " + consumer.receiveBody(String.class, PATIENCE));
    }
  }

  private static void share(JMSContext context, Topic topic) {
    try (JMSConsumer one = context.createSharedConsumer(topic, "team");
        JMSConsumer other = context.createSharedConsumer(topic, "team")) {
      context.createProducer().send(topic, "task");
      String first = one.receiveBody(String.class, 3_000);
      say("shared", first + " " + other.receiveBody(String.class, first == null ? PATIENCE : 1_000));
    }
    context.createSharedDurableConsumer(topic, "keepers").close();
    context.createProducer().send(topic, "kept for all");
    try (JMSConsumer again = context.createSharedDurableConsumer(topic, "keepers")) {
      say("shared durable", again.receiveBody(String.class, PATIENCE));
    }
    context.unsubscribe("keepers");
  }

  private static void keep(JMSContext context, Topic topic) {
    context.createDurableConsumer(topic, "audit").close();
    context.createProducer().send(topic, "kept");
    try (JMSConsumer consumer = context.createDurableConsumer(topic, "audit")) {
      say("durable", consumer.receiveBody(String.class, PATIENCE));
    }
    context.unsubscribe("audit");
    try {
      context.unsubscribe("audit");
      say("unsubscribed twice", "accepted");
    } catch (JMSRuntimeException refusal) {
      say("unsubscribed twice", refusal.getClass().getSimpleName());
    }
  }

  private static void say(String check, String saw) {
    System.out.println(check + "\t" + saw);
  }
}
