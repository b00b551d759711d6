// The driver of the Java SDK, with its retry options at their defaults. See lines.py for the protocol.
// A send gets its time by Mono.block; receiving and completing are those of the synchronous client.

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

public class Driver {
    static final int MAX_TEXT = 300;
    static final Map<String, ServiceBusReceivedMessage> held = new HashMap<>();
    static ServiceBusSenderAsyncClient sender;
    static ServiceBusReceiverClient receiver;

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = json.createObjectNode().put("copies", 0);
            try {
                answer.put("id", done(json.readTree(line))).put("outcome", "ok");
            } catch (Throwable error) {
                String text = String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
                answer.put("outcome", "error").put("error", kind(error))
                    .put("text", text.substring(0, Math.min(MAX_TEXT, text.length())));
            }
            System.out.println(json.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0); // the SDK's threads need not be waited for
    }

    static String kind(Throwable error) {
        String name = error.getClass().getSimpleName();
        return error instanceof ServiceBusException ? name + " " + ((ServiceBusException) error).getReason() : name;
    }

    static String done(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "open":
                open(command);
                return null;
            case "send":
                sender.sendMessage(new ServiceBusMessage("x").setMessageId(command.get("id").asText()))
                    .block(Duration.ofSeconds(command.get("limit").asInt()));
                return null;
            case "receive":
                String found = null;
                Duration wait = Duration.ofSeconds(command.get("wait").asInt());
                for (ServiceBusReceivedMessage message : receiver.receiveMessages(1, wait)) {
                    found = message.getMessageId();
                    held.put(found, message);
                }
                return found;
            default:
                receiver.complete(held.remove(command.get("id").asText()));
                return null;
        }
    }

    static void open(JsonNode command) throws Exception {
        String text = command.get("connection_string").asText();
        if (!command.get("tls_port").isNull()) {
            trust(command.get("ca_file").asText());
            text = text.replaceFirst("sb://[^;/]*", "sb://localhost:" + command.get("tls_port").asInt());
        }
        ServiceBusClientBuilder builder = new ServiceBusClientBuilder().connectionString(text);
        String queue = command.get("queue").asText();
        sender = builder.sender().queueName(queue).buildAsyncClient();
        receiver = builder.receiver().queueName(queue).disableAutoComplete().buildClient();
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
}
