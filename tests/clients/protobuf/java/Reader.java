import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import com.google.protobuf.util.JsonFormat.TypeRegistry;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;

/** Reads messages with the Java runtime. Arguments and output: tests/clients/protobuf.py. */
public class Reader {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        Map<String, FileDescriptor> files = new HashMap<>();
        TypeRegistry.Builder builder = TypeRegistry.newBuilder();
        // A file comes after those that it imports.
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(Files.readAllBytes(folder.resolve("descriptors.binpb"))).getFileList()) {
            FileDescriptor[] imports = file.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
            FileDescriptor descriptor = FileDescriptor.buildFrom(file, imports);
            files.put(file.getName(), descriptor);
            builder.add(descriptor.getMessageTypes());
        }
        TypeRegistry registry = builder.build();
        JsonArray cases = JsonParser.parseString(Files.readString(folder.resolve("cases.json"))).getAsJsonArray();
        for (JsonElement element : cases) {
            JsonObject one = element.getAsJsonObject();
            Descriptor descriptor = registry.find(one.get("message").getAsString());
            DynamicMessage binary = DynamicMessage.parseFrom(descriptor, Base64.getDecoder().decode(one.get("binary").getAsString()));
            DynamicMessage.Builder read = DynamicMessage.newBuilder(descriptor);
            JsonFormat.parser().usingTypeRegistry(registry).merge(one.get("json").getAsString(), read);
            JsonObject line = new JsonObject();
            line.add("name", one.get("name"));
            line.addProperty("equal", binary.equals(read.build()));
            line.add("message", JsonParser.parseString(JsonFormat.printer().usingTypeRegistry(registry).print(binary)));
            System.out.println(line);
        }
    }
}
