import java.util.Scanner;
import org.apache.maven.artifact.versioning.ComparableVersion;
import org.eclipse.aether.util.version.GenericVersionScheme;
import org.eclipse.aether.version.Version;

/**
 * Compares pairs of versions, one pair a line, as maven-artifact and as Maven's resolver. Prints the two orders.
 */
public class Compare {
    public static void main(String[] arguments) throws Exception {
        GenericVersionScheme scheme = new GenericVersionScheme();
        StringBuilder output = new StringBuilder();
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            String[] pair = lines.nextLine().split(" ");
            int artifact = new ComparableVersion(pair[0]).compareTo(new ComparableVersion(pair[1]));
            Version one = scheme.parseVersion(pair[0]), other = scheme.parseVersion(pair[1]);
            int resolver = one.compareTo(other);
            output.append(sign(artifact)).append(sign(resolver)).append('\n');
        }
        System.out.print(output);
    }

    private static char sign(int order) {
        return order < 0 ? '<' : order > 0 ? '>' : '=';
    }
}
