import com.nimbusds.jose.JOSEObjectType;
import com.nimbusds.jose.JWSAlgorithm;
import com.nimbusds.jose.jwk.JWKSet;
import com.nimbusds.jose.jwk.source.ImmutableJWKSet;
import com.nimbusds.jose.proc.DefaultJOSEObjectTypeVerifier;
import com.nimbusds.jose.proc.JWSVerificationKeySelector;
import com.nimbusds.jose.proc.SecurityContext;
import com.nimbusds.jwt.JWTClaimsSet;
import com.nimbusds.jwt.proc.DefaultJWTClaimsVerifier;
import com.nimbusds.jwt.proc.DefaultJWTProcessor;
import java.net.URI;
import java.util.Set;

/** Verifies the tokens of the command line, which are for one audience, with the published keys by Nimbus, and prints the subject of each. */
public class Verify {
    public static void main(String[] arguments) throws Exception {
        String issuer = arguments[0], audience = arguments[1];
        JWKSet keys = JWKSet.load(URI.create(issuer + "/.well-known/jwks.json").toURL());
        var processor = new DefaultJWTProcessor<SecurityContext>();
        processor.setJWSTypeVerifier(new DefaultJOSEObjectTypeVerifier<>(JOSEObjectType.JWT, new JOSEObjectType("at+jwt")));
        processor.setJWSKeySelector(new JWSVerificationKeySelector<>(
            Set.of(JWSAlgorithm.RS256, JWSAlgorithm.ES256), new ImmutableJWKSet<>(keys)));
        var exact = new JWTClaimsSet.Builder().issuer(issuer).build();
        processor.setJWTClaimsSetVerifier(new DefaultJWTClaimsVerifier<>(audience, exact, Set.of("sub", "exp")));
        for (int index = 2; index < arguments.length; index++) {
            System.out.println("Nimbus " + processor.process(arguments[index], null).getSubject());
        }
    }
}
