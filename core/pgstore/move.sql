-- Migrate runs this file on tables of version 1 to 6, in one transaction. The file
-- removes the functions with which processes of these versions took locks, and moves
-- the live entries. It does not move waiting claims, because the next call of their
-- processes fails.

LOCK TABLE lockkit.keys, lockkit.floor, lockkit.version IN ACCESS EXCLUSIVE MODE;
DROP VIEW IF EXISTS lockkit.locks;

-- Versions before 6 lack this type, this column and this table.
DO $$
BEGIN
  IF to_regtype('lockkit.found') IS NULL THEN
    CREATE TYPE lockkit.found AS (until timestamptz, saver bytea, beginner bytea, fresh boolean);
  END IF;
END $$;
ALTER TABLE lockkit.keys ADD COLUMN IF NOT EXISTS run_found lockkit.found;
CREATE TABLE IF NOT EXISTS lockkit.cards (process text COLLATE "C" PRIMARY KEY, until timestamptz NOT NULL, card bytea NOT NULL);
LOCK TABLE lockkit.cards IN ACCESS EXCLUSIVE MODE;

ALTER TABLE lockkit.version
  ADD COLUMN token bigint NOT NULL DEFAULT 0,
  ADD COLUMN id text NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE lockkit.version ALTER COLUMN token DROP DEFAULT, ALTER COLUMN id DROP DEFAULT;

-- The tables of version 7 are here.

-- micros and word are dropped in this transaction, together with the former functions.
CREATE OR REPLACE FUNCTION lockkit.micros(_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT (extract(epoch FROM _at) * 1000000)::bigint $$;

-- word returns a lease or an owner as a text: unchanged, or in base64 after "=".
CREATE FUNCTION lockkit.word(_b bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN encode(_b, 'escape') COLLATE "C" ~ '^[A-Za-z0-9._:-]+$' THEN encode(_b, 'escape')
    ELSE '=' || translate(encode(_b, 'base64'), E'\n', '') END
$$;

INSERT INTO lockkit.locks (name, version, token, since, until, written, due, state, value)
SELECT k.key, 1 + floor(random() * 9000000000000000000)::bigint, k.token, 0, 0, lockkit.micros(k.written),
  greatest(lockkit.micros(k.until), k.token + 64) / 300000000 + 1,
  convert_to(jsonb_strip_nulls(jsonb_build_object(
    'v', 1, 'written', lockkit.micros(k.written), 'token', k.token,
    'holds', (SELECT jsonb_agg(jsonb_build_object(
        -- A kept key has no lease in the former table.
        'lease', coalesce(lockkit.word(h.lease), 'kept'), 'owner', lockkit.word(h.owner), 'weight', h.weight,
        'since', CASE WHEN h.weight = 2147483647 THEN least(k.token, lockkit.micros(k.written)) ELSE lockkit.micros(k.written) END,
        'until', lockkit.micros(h.until)) ORDER BY h.n)
      FROM unnest(k.holds) WITH ORDINALITY h (lease, owner, weight, until, n)),
    'tombs', (SELECT jsonb_agg(jsonb_build_object('lease', lockkit.word(t.lease), 'until', lockkit.micros(t.until)) ORDER BY t.n)
      FROM unnest(k.tombs) WITH ORDINALITY t (lease, until, n)),
    'record', CASE WHEN k.run_until > clock_timestamp() THEN jsonb_build_object(
      'sum', encode(sha256(coalesce(k.value, '')), 'base64'), 'attempt', k.run_attempt, 'done', k.run_done,
      'until', lockkit.micros(k.run_until), 'saver', lockkit.word(k.run_saver), 'beginner', lockkit.word(k.run_beginner),
      'fresh', k.run_fresh,
      'before', CASE WHEN (k.run_found).until IS NOT NULL THEN jsonb_build_object(
        'attempt', k.run_attempt - 1, 'until', lockkit.micros((k.run_found).until), 'saver', lockkit.word((k.run_found).saver),
        'beginner', lockkit.word((k.run_found).beginner), 'fresh', (k.run_found).fresh) END) END))::text, 'UTF8'),
  CASE WHEN k.run_until > clock_timestamp() THEN k.value END
FROM lockkit.keys k WHERE k.until > clock_timestamp();

INSERT INTO lockkit.locks (name, version, token, since, until, written, due, state, value)
SELECT convert_to('{card}' || c.process, 'UTF8'), 1 + floor(random() * 9000000000000000000)::bigint, 0, 0, 0,
  lockkit.micros(clock_timestamp()), lockkit.micros(c.until) / 300000000 + 1,
  convert_to(jsonb_build_object('v', 1, 'written', lockkit.micros(clock_timestamp()), 'record', jsonb_build_object(
    'sum', encode(sha256(c.card), 'base64'), 'attempt', 0, 'done', true, 'until', lockkit.micros(c.until)))::text, 'UTF8'),
  c.card
FROM lockkit.cards c WHERE c.until > clock_timestamp();

-- The highest token of the rows that are not moved is stored, as if a sweep had deleted these rows.
UPDATE lockkit.version SET version = 7, token = greatest((SELECT max(f.token) FROM lockkit.floor f),
  (SELECT max(k.token) FROM lockkit.keys k WHERE NOT EXISTS (SELECT FROM lockkit.locks l WHERE l.name = k.key)), 0);

-- The owner and the users of the former tables get the same rights to the new ones.
DO $$
DECLARE
  g record;
BEGIN
  EXECUTE format('ALTER TABLE lockkit.locks OWNER TO %I',
    (SELECT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = 'lockkit.keys'::regclass));
  FOR g IN
    SELECT DISTINCT n.relation, a.privilege_type AS privilege, a.is_grantable,
        CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
      FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
      JOIN (VALUES ('keys', 'locks', 'SELECT'), ('keys', 'locks', 'INSERT'), ('keys', 'locks', 'UPDATE'), ('keys', 'locks', 'DELETE'),
        ('keys', 'version', 'SELECT'), ('floor', 'version', 'SELECT'), ('floor', 'version', 'UPDATE')) n (former, relation, privilege)
        ON a.privilege_type = n.privilege
      WHERE c.oid = ('lockkit.' || n.former)::regclass
  LOOP
    EXECUTE format('GRANT %s ON lockkit.%I TO %s%s', g.privilege, g.relation, g.grantee,
      CASE WHEN g.is_grantable AND g.grantee <> 'PUBLIC' THEN ' WITH GRANT OPTION' ELSE '' END);
  END LOOP;
END $$;

-- This drops the functions of each version, with the types and tables.
DO $$
DECLARE
  f regprocedure;
BEGIN
  FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'lockkit'::regnamespace LOOP
    EXECUTE format('DROP FUNCTION %s', f);
  END LOOP;
END $$;
DROP TABLE lockkit.keys, lockkit.floor, lockkit.cards;
DROP TYPE IF EXISTS lockkit.state, lockkit.hold, lockkit.place, lockkit.tomb, lockkit.found;
