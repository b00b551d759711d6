// The unmodified Java SDK against a namespace of the broker: each check prints a line, "name<TAB>what was seen".
// Arguments: connection string, host:port for TLS, the authority's certificate (PEM), a prefix for entities.

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpPipelineNextSyncPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.BinaryData;
import com.azure.core.util.IterableStream;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusRuleManagerClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import reactor.core.publisher.Mono;

public class JavaClient {
    interface Check {
        Object run() throws Exception;
    }

    static String prefix;

    public static void main(String[] args) throws Exception {
        String plain = args[0];
        String[] tls = args[1].split(":");
        trust(args[2]);
        prefix = args[3];

        ServiceBusAdministrationClient admin = admin(plain, Integer.parseInt(tls[1]));
        check("admin queue", () -> queues(admin));
        check("admin topic", () -> topics(admin));
        check("admin rules", () -> rules(admin));
        check("admin namespace", () -> admin.getNamespaceProperties().getName());
        check("admin lives", () -> lives(admin));
        check("admin missing", () -> admin.getQueueExists(prefix + "nowhere"));

        ServiceBusClientBuilder builder = builder(plain);
        check("send and settle", () -> sendAndSettle(builder));
        check("footer", () -> footer(builder));
        check("batch", () -> batch(builder));
        check("schedule", () -> schedule(builder));
        check("receive and delete", () -> receiveAndDelete(builder));
        check("renew", () -> renew(builder));
        check("sessions", () -> sessions(builder, builder(plain)));
        check("topic", () -> topic(builder));
        check("rule manager", () -> ruleManager(builder));
        check("processor", () -> processor(builder));
        check("wrong key", () -> wrongKey(plain));
        check("no entity", () -> send(builder, "nowhere", "x"));

        check("commit", () -> commit(builder));
        check("rollback", () -> rollback(builder));
        check("all settlements", () -> allSettlements(builder));
        check("hundred", () -> hundred(builder));
        check("two entities", () -> twoEntities(builder));
        check("scheduled in one", () -> scheduledInOne(builder));
        check("deferred in one", () -> deferredInOne(builder));
        check("across entities prepared", () -> send(builder, prefix + "from", "x"));
        check("across entities", () -> acrossEntities(builder(plain).enableCrossEntityTransactions()));

        String secure = plain.replace(";UseDevelopmentEmulator=true", "").replaceFirst("sb://[^;/]*", "sb://" + args[1]);
        check("over TLS", () -> send(builder(secure), prefix + "tls", "x"));
        ServiceBusClientBuilder webSocket = builder(secure).transportType(AmqpTransportType.AMQP_WEB_SOCKETS);
        check("over WebSocket", () -> send(webSocket, prefix + "tls", "x"));
        System.exit(0); // the SDK's threads need not be waited for
    }

    static void check(String name, Check check) {
        long began = System.nanoTime();
        Object seen;
        try {
            seen = check.run();
        } catch (Throwable error) {
            seen = "FAILED " + words(error);
        }
        long ms = (System.nanoTime() - began) / 1_000_000;
        System.out.println(name + "\t" + seen + "\t" + ms);
    }

    static String words(Throwable error) {
        String kind = error.getClass().getSimpleName();
        if (error instanceof ServiceBusException) {
            kind = ((ServiceBusException) error).getReason().toString();
        } else if (error instanceof AmqpException) {
            kind = ((AmqpException) error).getErrorCondition().getErrorCondition();
        }
        return kind + " " + String.valueOf(error.getMessage()).split("TrackingId")[0].split("\n")[0].trim();
    }

    static String refused(Check check) {
        try {
            return "not refused: " + check.run();
        } catch (Throwable error) {
            return words(error);
        }
    }

    static void trust(String certificate) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        try (FileInputStream in = new FileInputStream(certificate)) {
            store.setCertificateEntry("broker", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        Path file = Files.createTempFile("trust", ".p12");
        file.toFile().deleteOnExit();
        try (FileOutputStream out = new FileOutputStream(file.toFile())) {
            store.store(out, "changeit".toCharArray());
        }
        System.setProperty("javax.net.ssl.trustStore", file.toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
        System.setProperty("javax.net.ssl.trustStoreType", "PKCS12");
    }

    static ServiceBusClientBuilder builder(String connectionString) {
        AmqpRetryOptions retry = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(10));
        return new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(retry);
    }

    // The administration client drops the port of the connection string: a policy of its pipeline puts it back.
    static ServiceBusAdministrationClient admin(String connectionString, int port) {
        HttpPipelinePolicy toPort = new HttpPipelinePolicy() {
            @Override
            public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
                redirect(context);
                return next.process();
            }

            @Override
            public HttpResponse processSync(HttpPipelineCallContext context, HttpPipelineNextSyncPolicy next) {
                redirect(context);
                return next.processSync();
            }

            private void redirect(HttpPipelineCallContext context) {
                try {
                    URL url = context.getHttpRequest().getUrl();
                    context.getHttpRequest().setUrl(new URL(url.getProtocol(), url.getHost(), port, url.getFile()));
                } catch (java.net.MalformedURLException error) {
                    throw new IllegalStateException(error);
                }
            }
        };
        return new ServiceBusAdministrationClientBuilder().connectionString(connectionString).addPolicy(toPort).buildClient();
    }

    static ServiceBusSenderClient sender(ServiceBusClientBuilder builder, String queue) {
        return builder.sender().queueName(queue).buildClient();
    }

    static ServiceBusReceiverClient receiver(ServiceBusClientBuilder builder, String queue) {
        return builder.receiver().queueName(queue).disableAutoComplete().buildClient();
    }

    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        IterableStream<ServiceBusReceivedMessage> messages = receiver.receiveMessages(count, Duration.ofSeconds(5));
        return messages.stream().collect(Collectors.toList());
    }

    static ServiceBusReceivedMessage one(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    static String send(ServiceBusClientBuilder builder, String queue, String... bodies) {
        try (ServiceBusSenderClient sender = sender(builder, queue)) {
            for (String body : bodies) {
                sender.sendMessage(new ServiceBusMessage(body));
            }
        }
        return "sent " + bodies.length;
    }

    // -- administration

    static Object queues(ServiceBusAdministrationClient admin) {
        List<Object> seen = new ArrayList<>();
        String name = prefix + "made";
        CreateQueueOptions options = new CreateQueueOptions().setLockDuration(Duration.ofSeconds(30)).setMaxDeliveryCount(5);
        QueueProperties made = admin.createQueue(name, options);
        seen.add(made.getName().equals(name));
        seen.add(made.getLockDuration());
        seen.add(made.getMaxDeliveryCount());
        seen.add(admin.updateQueue(made.setMaxDeliveryCount(7)).getMaxDeliveryCount());
        seen.add(admin.getQueueRuntimeProperties(name).getTotalMessageCount());
        seen.add(admin.listQueues().stream().anyMatch(queue -> queue.getName().equals(name)));
        seen.add(refused(() -> admin.createQueue(name)).split(" ")[0]);
        admin.deleteQueue(name);
        seen.add(admin.getQueueExists(name));
        return seen;
    }

    static Object topics(ServiceBusAdministrationClient admin) {
        List<Object> seen = new ArrayList<>();
        String name = prefix + "events";
        seen.add(admin.createTopic(name).getName().equals(name));
        CreateSubscriptionOptions options = new CreateSubscriptionOptions().setMaxDeliveryCount(3);
        seen.add(admin.createSubscription(name, "billing", options).getMaxDeliveryCount());
        seen.add(admin.getSubscriptionRuntimeProperties(name, "billing").getActiveMessageCount());
        seen.add(admin.listSubscriptions(name).stream().count());
        seen.add(admin.getTopicRuntimeProperties(name).getSubscriptionCount());
        return seen;
    }

    static Object lives(ServiceBusAdministrationClient admin) {
        List<Object> seen = new ArrayList<>();
        String name = prefix + "brief";
        TopicProperties topic = admin.createTopic(name);
        seen.add(admin.updateTopic(topic.setMaxSizeInMegabytes(2048)).getMaxSizeInMegabytes());
        SubscriptionProperties made = admin.createSubscription(name, "s");
        seen.add(admin.updateSubscription(made.setMaxDeliveryCount(4)).getMaxDeliveryCount());
        seen.add(admin.listTopics().stream().anyMatch(each -> each.getName().equals(name)));
        admin.deleteSubscription(name, "s");
        seen.add(admin.getSubscriptionExists(name, "s"));
        admin.deleteTopic(name);
        seen.add(admin.getTopicExists(name));
        return seen;
    }

    static Object rules(ServiceBusAdministrationClient admin) {
        List<Object> seen = new ArrayList<>();
        String topic = prefix + "events";
        SqlRuleFilter dear = new SqlRuleFilter("price > @least");
        dear.getParameters().put("@least", 10);
        CreateRuleOptions options = new CreateRuleOptions().setFilter(dear).setAction(new SqlRuleAction("SET hot = 'yes'"));
        SqlRuleFilter made = (SqlRuleFilter) admin.createRule(topic, "dear", "billing", options).getFilter();
        seen.add(made.getSqlExpression() + made.getParameters());
        CorrelationRuleFilter red = new CorrelationRuleFilter().setLabel("red");
        red.getProperties().put("n", 1);
        admin.createRule(topic, "red", "billing", new CreateRuleOptions().setFilter(red));
        RuleProperties got = admin.getRule(topic, "billing", "red");
        seen.add(((CorrelationRuleFilter) got.getFilter()).getLabel() + ((CorrelationRuleFilter) got.getFilter()).getProperties());
        seen.add(((SqlRuleFilter) admin.updateRule(topic, "billing", got.setFilter(new SqlRuleFilter("a = 1"))).getFilter()).getSqlExpression());
        admin.deleteRule(topic, "billing", "red");
        seen.add(admin.listRules(topic, "billing").stream().map(RuleProperties::getName).collect(Collectors.toList()));
        return seen;
    }

    // -- messages

    static Object ruleManager(ServiceBusClientBuilder builder) {
        List<Object> seen = new ArrayList<>();
        try (ServiceBusRuleManagerClient rules = builder.ruleManager().topicName(prefix + "ruled").subscriptionName("s").buildClient()) {
            rules.deleteRule("$Default");
            SqlRuleFilter one = new SqlRuleFilter("a = 1");
            rules.createRule("sql", new CreateRuleOptions().setFilter(one).setAction(new SqlRuleAction("SET b = 2")));
            rules.createRule("red", new CreateRuleOptions().setFilter(new CorrelationRuleFilter().setLabel("red")));
            for (RuleProperties rule : rules.listRules()) {
                seen.add(rule.getName() + " " + rule.getFilter() + " " + (rule.getAction() instanceof SqlRuleAction));
            }
            seen.add(refused(() -> { rules.deleteRule("none"); return null; }).split(" ")[0]);
        }
        return seen;
    }

    static Object footer(ServiceBusClientBuilder builder) {
        String queue = prefix + "settle";
        try (ServiceBusSenderClient sender = sender(builder, queue); ServiceBusReceiverClient receiver = receiver(builder, queue)) {
            ServiceBusMessage message = new ServiceBusMessage(BinaryData.fromString("footed"));
            message.getRawAmqpMessage().getFooter().put("foot", "note");
            sender.sendMessage(message);
            ServiceBusReceivedMessage got = one(receiver);
            receiver.complete(got);
            return got.getBody() + " " + got.getRawAmqpMessage().getFooter();
        }
    }

    static Object sendAndSettle(ServiceBusClientBuilder builder) {
        String queue = prefix + "settle";
        List<Object> seen = new ArrayList<>();
        try (ServiceBusSenderClient sender = sender(builder, queue); ServiceBusReceiverClient receiver = receiver(builder, queue)) {
            ServiceBusMessage message = new ServiceBusMessage(BinaryData.fromString("hello"));
            message.setMessageId("one").setSubject("greeting").setTimeToLive(Duration.ofHours(1));
            message.getApplicationProperties().put("n", 7L);
            sender.sendMessage(message);
            ServiceBusReceivedMessage got = one(receiver);
            seen.add(got.getBody() + "/" + got.getMessageId() + "/" + got.getSubject() + "/" + got.getApplicationProperties().get("n"));
            seen.add(got.getSequenceNumber());
            receiver.abandon(got);
            got = one(receiver);
            seen.add(got.getDeliveryCount());
            receiver.defer(got);
            got = receiver.receiveDeferredMessage(got.getSequenceNumber());
            receiver.deadLetter(got, new DeadLetterOptions().setDeadLetterReason("because"));
        }
        try (ServiceBusReceiverClient dead = builder.receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient()) {
            ServiceBusReceivedMessage got = one(dead);
            seen.add(got.getDeadLetterReason());
            dead.complete(got);
        }
        return seen;
    }

    static Object batch(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = sender(builder, prefix + "batch"); ServiceBusReceiverClient receiver = receiver(builder, prefix + "batch")) {
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            for (int i = 0; i < 20; i++) {
                batch.tryAddMessage(new ServiceBusMessage("m" + i));
            }
            sender.sendMessages(batch);
            int peeked = 0;
            for (ServiceBusReceivedMessage message : receiver.peekMessages(50)) {
                peeked++;
            }
            return batch.getMaxSizeInBytes() + " " + peeked;
        }
    }

    static Object schedule(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = sender(builder, prefix + "schedule")) {
            OffsetDateTime later = OffsetDateTime.now().plusHours(1);
            long first = sender.scheduleMessage(new ServiceBusMessage("a"), later);
            long second = sender.scheduleMessage(new ServiceBusMessage("b"), later);
            sender.cancelScheduledMessage(first);
            return first + " " + second;
        }
    }

    static Object receiveAndDelete(ServiceBusClientBuilder builder) {
        String queue = prefix + "delete";
        send(builder, queue, "a", "b");
        try (ServiceBusReceiverClient receiver = builder.receiver().queueName(queue).receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            return receive(receiver, 2).stream().map(message -> message.getBody().toString()).collect(Collectors.toList());
        }
    }

    static Object renew(ServiceBusClientBuilder builder) {
        String queue = prefix + "renew";
        send(builder, queue, "a");
        try (ServiceBusReceiverClient receiver = receiver(builder, queue)) {
            ServiceBusReceivedMessage got = one(receiver);
            OffsetDateTime before = got.getLockedUntil();
            boolean later = !receiver.renewMessageLock(got).isBefore(before);
            receiver.complete(got);
            return later;
        }
    }

    static Object sessions(ServiceBusClientBuilder builder, ServiceBusClientBuilder other) {
        String queue = prefix + "sessions";
        List<Object> seen = new ArrayList<>();
        try (ServiceBusSenderClient sender = sender(builder, queue)) {
            sender.sendMessage(new ServiceBusMessage("a1").setSessionId("a"));
            sender.sendMessage(new ServiceBusMessage("a2").setSessionId("a"));
            sender.sendMessage(new ServiceBusMessage("b1").setSessionId("b"));
            seen.add(refused(() -> { sender.sendMessage(new ServiceBusMessage("none")); return null; }).split(" ")[0]);
        }
        try (ServiceBusSessionReceiverClient sessions = builder.sessionReceiver().queueName(queue).disableAutoComplete().buildClient();
             ServiceBusReceiverClient held = sessions.acceptSession("a")) {
            for (ServiceBusReceivedMessage message : receive(held, 2)) {
                seen.add(message.getBody().toString());
                held.complete(message);
            }
            held.setSessionState("noted".getBytes());
            seen.add(new String(held.getSessionState()));
            seen.add(held.renewSessionLock().isAfter(OffsetDateTime.now()));
            try (ServiceBusSessionReceiverClient others = other.sessionReceiver().queueName(queue).buildClient()) {
                seen.add(refused(() -> others.acceptSession("a")).split(" ")[0]);
            }
            try (ServiceBusReceiverClient next = sessions.acceptNextSession()) {
                seen.add(next.getSessionId());
            }
        }
        return seen;
    }

    static Object topic(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = builder.sender().topicName(prefix + "events").buildClient();
             ServiceBusReceiverClient receiver = builder.receiver().topicName(prefix + "events").subscriptionName("billing").disableAutoComplete().buildClient()) {
            sender.sendMessage(new ServiceBusMessage("paid"));
            ServiceBusReceivedMessage got = one(receiver);
            receiver.complete(got);
            return got.getBody().toString();
        }
    }

    static Object processor(ServiceBusClientBuilder builder) throws Exception {
        String queue = prefix + "processor";
        String[] bodies = new String[30];
        java.util.Arrays.fill(bodies, "x");
        send(builder, queue, bodies);
        CountDownLatch all = new CountDownLatch(bodies.length);
        ServiceBusProcessorClient processor = builder.processor().queueName(queue).maxConcurrentCalls(4)
            .processMessage(context -> all.countDown()).processError(context -> { }).buildProcessorClient();
        processor.start();
        boolean done = all.await(20, TimeUnit.SECONDS);
        processor.close();
        return done;
    }

    static Object wrongKey(String connectionString) {
        return refused(() -> send(builder(connectionString.replaceFirst("SharedAccessKey=[^;]*", "SharedAccessKey=d3Jvbmc=")), prefix + "settle", "x"));
    }

    // -- transactions

    static Object commit(ServiceBusClientBuilder builder) {
        String queue = prefix + "commit";
        send(builder, queue, "before");
        try (ServiceBusSenderClient sender = sender(builder, queue); ServiceBusReceiverClient receiver = receiver(builder, queue)) {
            ServiceBusReceivedMessage got = one(receiver);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            sender.sendMessage(new ServiceBusMessage("in it"), transaction);
            receiver.complete(got, new CompleteOptions().setTransactionContext(transaction));
            long before = receiver.peekMessage(0).getSequenceNumber();
            sender.commitTransaction(transaction);
            ServiceBusReceivedMessage after = one(receiver);
            receiver.complete(after);
            return before + " " + after.getBody() + " " + after.getSequenceNumber();
        }
    }

    static Object rollback(ServiceBusClientBuilder builder) {
        String queue = prefix + "rollback";
        send(builder, queue, "before");
        try (ServiceBusSenderClient sender = sender(builder, queue); ServiceBusReceiverClient receiver = receiver(builder, queue)) {
            ServiceBusReceivedMessage got = one(receiver);
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            sender.sendMessage(new ServiceBusMessage("never"), transaction);
            receiver.complete(got, new CompleteOptions().setTransactionContext(transaction));
            receiver.rollbackTransaction(transaction);
            List<Object> seen = new ArrayList<>();
            for (ServiceBusReceivedMessage message : receiver.peekMessages(9, 0)) {
                seen.add(message.getBody().toString());
            }
            seen.add(refused(() -> { sender.commitTransaction(transaction); return null; }));
            return seen;
        }
    }

    static Object allSettlements(ServiceBusClientBuilder builder) {
        String queue = prefix + "all";
        send(builder, queue, "complete", "abandon", "defer", "dead");
        try (ServiceBusReceiverClient receiver = receiver(builder, queue)) {
            List<ServiceBusReceivedMessage> got = new ArrayList<>();
            while (got.size() < 4) {
                got.addAll(receive(receiver, 4 - got.size()));
            }
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(got.get(0), new CompleteOptions().setTransactionContext(transaction));
            receiver.abandon(got.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.defer(got.get(2), new DeferOptions().setTransactionContext(transaction));
            receiver.deadLetter(got.get(3), new DeadLetterOptions().setDeadLetterReason("why").setTransactionContext(transaction));
            receiver.commitTransaction(transaction);
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.get(2).getSequenceNumber());
            ServiceBusReceivedMessage abandoned = one(receiver);
            return abandoned.getBody() + " " + abandoned.getDeliveryCount() + " " + deferred.getBody();
        }
    }

    static Object hundred(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = sender(builder, prefix + "hundred")) {
            ServiceBusTransactionContext transaction = sender.createTransaction();
            List<ServiceBusMessage> messages = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                messages.add(new ServiceBusMessage("m" + i));
            }
            sender.sendMessages(messages, transaction);
            sender.sendMessage(new ServiceBusMessage("101"), transaction); // the SDK does not look at the refusal
            return refused(() -> { sender.commitTransaction(transaction); return null; });
        }
    }

    static Object twoEntities(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient here = sender(builder, prefix + "here"); ServiceBusSenderClient there = sender(builder, prefix + "there")) {
            ServiceBusTransactionContext transaction = here.createTransaction();
            here.sendMessage(new ServiceBusMessage("a"), transaction);
            there.sendMessage(new ServiceBusMessage("b"), transaction); // the SDK does not look at the refusal
            return refused(() -> { here.commitTransaction(transaction); return null; });
        }
    }

    static Object scheduledInOne(ServiceBusClientBuilder builder) {
        try (ServiceBusSenderClient sender = sender(builder, prefix + "later")) {
            OffsetDateTime later = OffsetDateTime.now().plusHours(1);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            long number = sender.scheduleMessage(new ServiceBusMessage("a"), later, transaction);
            sender.commitTransaction(transaction);
            sender.cancelScheduledMessage(number);
            ServiceBusTransactionContext undone = sender.createTransaction();
            sender.scheduleMessage(new ServiceBusMessage("b"), later, undone);
            sender.rollbackTransaction(undone);
            return number;
        }
    }

    static Object deferredInOne(ServiceBusClientBuilder builder) {
        String queue = prefix + "deferred";
        send(builder, queue, "a");
        try (ServiceBusReceiverClient receiver = receiver(builder, queue)) {
            ServiceBusReceivedMessage got = one(receiver);
            receiver.defer(got);
            ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(got.getSequenceNumber());
            ServiceBusTransactionContext transaction = receiver.createTransaction();
            receiver.complete(deferred, new CompleteOptions().setTransactionContext(transaction));
            boolean there = receiver.peekMessage(0) != null;
            receiver.commitTransaction(transaction);
            return there + " " + (receiver.peekMessage(0) == null);
        }
    }

    static Object acrossEntities(ServiceBusClientBuilder builder) {
        String from = prefix + "from";
        String to = prefix + "to";
        try (ServiceBusReceiverClient receiver = receiver(builder, from); ServiceBusSenderClient sender = sender(builder, to)) {
            ServiceBusReceivedMessage got = one(receiver);
            ServiceBusTransactionContext transaction = sender.createTransaction();
            receiver.complete(got, new CompleteOptions().setTransactionContext(transaction));
            sender.sendMessage(new ServiceBusMessage("on"), transaction);
            sender.commitTransaction(transaction);
            return got.getBody() + " committed";
        }
    }
}
