"""The security-critical files, which .ci/mutants and .ci/omissions change."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The share of each group in a sample of .ci/mutants, and its files by crate.
GROUPS = {
    "rules": (
        0.6,
        {
            "platform-engine": ["access/**", "scope.rs", "aip/**"],
            "platform-core": ["iam/authority.rs", "iam/giving.rs", "iam/secrets.rs"],
            "platform-oidc": ["verifier.rs", "claims.rs", "jws.rs", "sts.rs", "sts/**"],
        },
    ),
    "state": (
        0.4,
        {
            "platform-core": [
                "resources/iam/group_invite.rs",
                "resources/iam/identity_provider.rs",
                "resources/iam/external_group_role_mapping.rs",
                "resources/iam/owner.rs",
                "iam/sign_ins.rs",
                "outbox.rs",
                "outbox/**",
                "event_log.rs",
            ],
            "platform-blobs": ["**"],
            "platform-keys": ["**"],
            "platform-store-kv": ["commit.rs", "encoded/**", "overlay.rs", "store.rs", "writer.rs"],
            "platform-store-sqlite": ["rows/**", "store.rs"],
            "platform-store-sled": ["backend.rs", "snapshot.rs", "store.rs"],
        },
    ),
}
