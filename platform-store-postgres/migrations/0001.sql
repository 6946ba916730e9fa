-- Layout 1. Every table is distributed by `org`, the 64-bit hash of the first segment of a uid, which is a part of
-- every key, so that the tables can be distributed by organization without a change. Text and bytes compare bytewise.

-- The greatest sequence of each organization.
CREATE TABLE head (
    org int8 PRIMARY KEY,
    sequence int8 NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE epoch (
    org int8 NOT NULL,
    name text COLLATE "C" NOT NULL,
    value int8 NOT NULL,
    PRIMARY KEY (org, name)
) WITH (fillfactor = 50);

-- The column of `record` that has a sort key's values. A row is never changed.
-- A kind has a row with the empty key, whose slot is 1 if the kind is a queue and 0 otherwise.
CREATE TABLE slot (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    slot int4 NOT NULL,
    PRIMARY KEY (kind, key)
);

-- Records, in the order of each list of children: `list` is the list of the parent's children, a 128-bit hash of the
-- kind and the parent. The body is in the row that the index of an order leads to. The leading columns of the primary
-- key differ from those of the orders, because the planner would otherwise take one for another.
CREATE TABLE record (
    -- What a list reads comes first: a row is read from its beginning up to the last column that is needed.
    org int8 NOT NULL,
    list uuid NOT NULL,
    revision int8 NOT NULL,
    rendering int4 NOT NULL,
    queue bool NOT NULL,
    uid text COLLATE "C" NOT NULL,
    s1 bytea,
    s2 bytea,
    s3 bytea,
    s4 bytea,
    body bytea NOT NULL,
    kind text COLLATE "C" NOT NULL,
    private bytea NOT NULL,
    -- The sort keys that have no column.
    sort_keys text[] COLLATE "C" NOT NULL,
    sort_values bytea[] NOT NULL,
    filter_keys text[] COLLATE "C" NOT NULL,
    filter_values bytea[] NOT NULL,
    unique_spaces text[] COLLATE "C" NOT NULL,
    unique_values bytea[] NOT NULL
);
-- Lists of all organizations.
CREATE INDEX all_by_sequence ON record (kind, revision, uid);
CREATE INDEX all_by_uid ON record (kind, uid);
CREATE INDEX record_by_s4 ON record (org, list, s4, uid) WHERE s4 IS NOT NULL;
CREATE INDEX record_by_s3 ON record (org, list, s3, uid) WHERE s3 IS NOT NULL;
CREATE INDEX record_by_s2 ON record (org, list, s2, uid) WHERE s2 IS NOT NULL;
CREATE INDEX record_by_s1 ON record (org, list, s1, uid) WHERE s1 IS NOT NULL;
CREATE INDEX record_by_sequence ON record (org, list, revision, uid);
CREATE INDEX record_by_uid ON record (org, list, uid);
ALTER TABLE record ADD PRIMARY KEY (org, kind, uid);

-- The entries of records in the lists of their further ancestors, and of records of one segment in the list of roots,
-- which is in the organization of the installation. `home` is the record's organization.
CREATE TABLE deep (
    org int8 NOT NULL,
    list uuid NOT NULL,
    uid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    home int8 NOT NULL,
    revision int8 NOT NULL,
    s1 bytea,
    s2 bytea,
    s3 bytea,
    s4 bytea
);
CREATE INDEX deep_by_s4 ON deep (org, list, s4, uid) WHERE s4 IS NOT NULL;
CREATE INDEX deep_by_s3 ON deep (org, list, s3, uid) WHERE s3 IS NOT NULL;
CREATE INDEX deep_by_s2 ON deep (org, list, s2, uid) WHERE s2 IS NOT NULL;
CREATE INDEX deep_by_s1 ON deep (org, list, s1, uid) WHERE s1 IS NOT NULL;
CREATE INDEX deep_by_sequence ON deep (org, list, revision, uid);
ALTER TABLE deep ADD PRIMARY KEY (org, list, uid);

-- The records with a filter value: `value` is a 128-bit hash of the kind, the key and the value.
CREATE TABLE member (
    org int8 NOT NULL,
    value uuid NOT NULL,
    uid text COLLATE "C" NOT NULL
);
CREATE INDEX all_members ON member (value, uid);
ALTER TABLE member ADD PRIMARY KEY (org, value, uid);

-- The owners of unique keys, in the organization that is the hash of the space and the value.
CREATE TABLE owner (
    org int8 NOT NULL,
    space text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    kind text COLLATE "C" NOT NULL,
    uid text COLLATE "C" NOT NULL,
    PRIMARY KEY (org, space, value)
);

-- The lengths of lists: children, and further descendants (or roots). `blocked`: the list has counted blocks.
CREATE TABLE tally (
    org int8 NOT NULL,
    list uuid NOT NULL,
    kind text COLLATE "C" NOT NULL,
    direct int8 NOT NULL,
    deep int8 NOT NULL,
    blocked bool NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE INDEX tally_of_kind ON tally (kind);
ALTER TABLE tally ADD PRIMARY KEY (org, list);

-- Counted blocks of the records at or below a uid, for skips: a block of an order begins at (`low`, `low_uid`) and ends
-- where the next one of its level begins.
CREATE TABLE block (
    org int8 NOT NULL,
    list uuid NOT NULL,
    ord int4 NOT NULL,
    level int4 NOT NULL,
    low bytea NOT NULL,
    low_uid text COLLATE "C" NOT NULL,
    n int4 NOT NULL,
    PRIMARY KEY (org, list, ord, level, low, low_uid)
) WITH (fillfactor = 50);

-- Group commits, to find out what became of one whose connection broke. Old rows are deleted.
CREATE TABLE batch (
    org int8 NOT NULL,
    id uuid NOT NULL,
    at int8 NOT NULL
);
CREATE INDEX batch_by_time ON batch (at);
ALTER TABLE batch ADD PRIMARY KEY (org, id);

-- Small documents of the installation, such as keys.
CREATE TABLE document (
    org int8 NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision int8 NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (org, name)
);
