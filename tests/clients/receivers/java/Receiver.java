import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpServer;
import io.cloudevents.CloudEvent;
import io.cloudevents.http.HttpMessageFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.Map;

/** Receives events with the Java SDK. Output: tests/clients/receivers.py. */
public class Receiver {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            Map<String, Object> decoded = new LinkedHashMap<>();
            int status = 200;
            try {
                byte[] body = exchange.getRequestBody().readAllBytes();
                // The SDK validates the attributes where it builds an event.
                CloudEvent event = HttpMessageFactory.createReaderFromMultimap(exchange.getRequestHeaders(), body).toEvent();
                decoded.put("id", event.getId());
                decoded.put("source", event.getSource().toString());
                decoded.put("type", event.getType());
                decoded.put("subject", event.getSubject());
                decoded.put("millis", event.getTime().toInstant().toEpochMilli());
                decoded.put("datacontenttype", event.getDataContentType());
                decoded.put("group", event.getExtension("group"));
                decoded.put("bodytype", event.getExtension("bodytype"));
                decoded.put("data", JSON.readTree(event.getData().toBytes()));
                decoded.put("url", exchange.getRequestURI().toString());
            } catch (Exception error) {
                decoded.put("error", error.toString());
                status = 400;
            }
            System.out.println(JSON.writeValueAsString(decoded));
            exchange.sendResponseHeaders(status, -1);
        });
        System.out.println("port " + server.getAddress().getPort());
        server.start();
    }
}
