#!/bin/sh
# Maven has two orders of versions, and they disagree: maven-artifact 3.9.9 (`ComparableVersion`, of plugins and version
# ranges of old) and maven-resolver-util 1.9.24 (`GenericVersionScheme`, by which Maven 3.9 resolves ranges).
#
# An underscore is a separator for the resolver only, so 1.0_beta1 is before 1.0 for one and after it for the other. Needs
# a JDK, Maven and Maven Central.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/src"
cat > "$work/pom.xml" <<'XML'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId>
  <artifactId>finding</artifactId>
  <version>0</version>
  <dependencies>
    <dependency><groupId>org.apache.maven</groupId><artifactId>maven-artifact</artifactId><version>3.9.9</version></dependency>
    <dependency><groupId>org.apache.maven.resolver</groupId><artifactId>maven-resolver-util</artifactId><version>1.9.24</version></dependency>
  </dependencies>
</project>
XML
cat > "$work/src/Main.java" <<'JAVA'
import org.apache.maven.artifact.versioning.ComparableVersion;
import org.eclipse.aether.util.version.GenericVersionScheme;
import org.eclipse.aether.version.Version;

public class Main {
    public static void main(String[] arguments) throws Exception {
        String[][] pairs = {{"1.0-beta1", "1.0"}, {"1.0_beta1", "1.0"}};
        GenericVersionScheme scheme = new GenericVersionScheme();
        for (String[] pair : pairs) {
            int artifact = Integer.signum(new ComparableVersion(pair[0]).compareTo(new ComparableVersion(pair[1])));
            Version low = scheme.parseVersion(pair[0]), high = scheme.parseVersion(pair[1]);
            int resolver = Integer.signum(low.compareTo(high));
            System.out.println(pair[0] + " " + pair[1] + " artifact " + artifact + " resolver " + resolver);
        }
    }
}
JAVA
cd "$work"
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
found=$(java -cp 'lib/*' src/Main.java)
expected='1.0-beta1 1.0 artifact -1 resolver -1
1.0_beta1 1.0 artifact 1 resolver -1'
echo "$found"
[ "$found" = "$expected" ]
