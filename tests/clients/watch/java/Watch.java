import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.launchdarkly.eventsource.ConnectStrategy;
import com.launchdarkly.eventsource.ErrorStrategy;
import com.launchdarkly.eventsource.EventSource;
import com.launchdarkly.eventsource.MessageEvent;
import java.net.URI;
import java.util.concurrent.TimeUnit;

/** Prints each event of the watch of URL, with okhttp-eventsource, which reconnects by itself. */
public class Watch {
  public static void main(String[] arguments) {
    ConnectStrategy connect = ConnectStrategy.http(URI.create(System.getenv("URL")))
        .header("Authorization", "Bearer " + System.getenv("TOKEN"))
        .readTimeout(60, TimeUnit.SECONDS);
    EventSource events = new EventSource.Builder(connect).errorStrategy(ErrorStrategy.alwaysContinue()).build();
    for (MessageEvent event : events.messages()) {
      JsonObject change = JsonParser.parseString(event.getData()).getAsJsonObject();
      JsonObject resource = change.getAsJsonObject("resource");
      System.out.println(event.getEventName() + " " + (resource == null ? "" : resource.get("uid").getAsString()));
      if (event.getEventName().equals("closing") && !change.get("retryable").getAsBoolean()) {
        events.close();
        return;
      }
    }
  }
}
