-- The state of one key, as the functions pass it on: its row without key and
-- dates, at one moment, of which only what is alive. value is what to write if
-- changed is set; mended says that all of it is to be written.
DO $$
BEGIN
  IF to_regtype('lockkit.state') IS NULL THEN
    CREATE TYPE lockkit.state AS (
      token bigint, holds lockkit.hold[], places lockkit.place[], tombs lockkit.tomb[],
      run_until timestamptz, run_attempt bigint, run_done boolean, run_saver bytea, run_beginner bytea,
      run_fresh boolean, value bytea, changed boolean, mended boolean, run_found lockkit.found);
  ELSIF NOT EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.typrelid = a.attrelid
      WHERE t.oid = to_regtype('lockkit.state') AND a.attname = 'run_found') THEN
    ALTER TYPE lockkit.state ADD ATTRIBUTE run_found lockkit.found; -- since version 2
  END IF;
END $$;

-- bucket counts in steps of five minutes, so that a row's place in the index by
-- which it is found for deletion changes rarely.
CREATE OR REPLACE FUNCTION lockkit.bucket(_at timestamptz) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT ceil(extract(epoch FROM _at) / 300)::integer $$;

-- due is the next value of that column: a little too late is good enough.
CREATE OR REPLACE FUNCTION lockkit.due(_old integer, _until timestamptz) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN _old - lockkit.bucket(_until) BETWEEN 0 AND 1 THEN _old ELSE lockkit.bucket(_until) END
$$;

-- begin_call is what every function on a key begins with. Each of its steps has to see
-- what was committed before it had the row's lock, and what is granted must
-- outlast a crash of the server.
CREATE OR REPLACE FUNCTION lockkit.begin_call() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
    RAISE EXCEPTION 'lockkit: not for transactions with one snapshot' USING ERRCODE = 'LK001';
  END IF;
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- micros is a time as a token.
CREATE OR REPLACE FUNCTION lockkit.micros(_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT (extract(epoch FROM _at) * 1000000)::bigint $$;

-- ms is a length of time as an interval.
CREATE OR REPLACE FUNCTION lockkit.ms(_ms bigint) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT _ms * interval '1 millisecond' $$;

-- load locks the row of a key and returns what of it is alive at _now, or null if
-- there is no row.
--
-- A row that was written later than now was written before the clock was set back. Each
-- of its deadlines is then as far ahead as it was when the row was written: never too
-- near, and never further ahead than was asked for.
CREATE OR REPLACE FUNCTION lockkit.load(_key bytea, OUT _now timestamptz, OUT s lockkit.state) LANGUAGE plpgsql AS $$
DECLARE
  k record;
  ahead interval;
BEGIN
  SELECT token, written, holds, places, tombs, run_until, run_attempt, run_done, run_saver, run_beginner, run_fresh, run_found
    INTO k FROM lockkit.keys WHERE key = _key FOR UPDATE;
  _now := clock_timestamp();
  IF NOT FOUND THEN
    RETURN;
  END IF;
  s.token := k.token;
  s.holds := k.holds;
  s.places := k.places;
  s.tombs := k.tombs;
  s.changed := false;
  s.mended := k.written > _now;
  IF s.mended THEN
    ahead := (lockkit.micros(k.written) - lockkit.micros(_now)) * interval '1 microsecond'; -- no days, whose length varies
    k.holds := ARRAY(SELECT (h.lease, h.owner, h.weight, h.until - ahead)::lockkit.hold FROM unnest(k.holds) h);
    k.places := ARRAY(SELECT (p.lease, p.owner, p.weight, p.cap, p.fair, p.run, p.wake, p.until - ahead)::lockkit.place
      FROM unnest(k.places) p);
    k.tombs := ARRAY(SELECT (t.lease, t.until - ahead)::lockkit.tomb FROM unnest(k.tombs) t);
    k.run_until := k.run_until - ahead;
  END IF;
  IF cardinality(s.holds) > 0 THEN
    s.holds := ARRAY(SELECT h FROM unnest(k.holds) h WHERE h.until > _now);
  END IF;
  IF cardinality(s.places) > 0 THEN
    s.places := ARRAY(SELECT p FROM unnest(k.places) p WHERE p.until > _now);
  END IF;
  IF cardinality(s.tombs) > 0 THEN
    s.tombs := ARRAY(SELECT t FROM unnest(k.tombs) t WHERE t.until > _now);
  END IF;
  IF k.run_until > _now THEN
    s.run_until := k.run_until;
    s.run_attempt := k.run_attempt;
    s.run_done := k.run_done;
    s.run_saver := k.run_saver;
    s.run_beginner := k.run_beginner;
    s.run_fresh := k.run_fresh;
    s.run_found := k.run_found;
    IF s.mended THEN
      s.run_found.until := (s.run_found).until - ahead;
    END IF;
  ELSIF k.run_until IS NOT NULL THEN
    s.changed := true;
  END IF;
END $$;

-- save writes the row of a key.
CREATE OR REPLACE FUNCTION lockkit.save(_key bytea, _now timestamptz, s lockkit.state) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  ends timestamptz := greatest(_now, s.run_until);
BEGIN
  IF cardinality(s.holds) > 0 THEN
    ends := greatest(ends, (SELECT max(h.until) FROM unnest(s.holds) h));
  END IF;
  IF cardinality(s.places) > 0 THEN
    ends := greatest(ends, (SELECT max(p.until) FROM unnest(s.places) p));
  END IF;
  IF cardinality(s.tombs) > 0 THEN
    ends := greatest(ends, (SELECT max(t.until) FROM unnest(s.tombs) t));
  END IF;
  UPDATE lockkit.keys k SET token = s.token, until = ends, due = lockkit.due(k.due, ends), written = _now,
    holds = s.holds, places = s.places, tombs = s.tombs,
    run_until = s.run_until, run_attempt = s.run_attempt, run_done = s.run_done, run_saver = s.run_saver,
    run_beginner = s.run_beginner, run_fresh = s.run_fresh, run_found = s.run_found,
    value = CASE WHEN s.changed THEN s.value ELSE k.value END
    WHERE k.key = _key;
END $$;

-- forget drops the record.
CREATE OR REPLACE FUNCTION lockkit.forget(s lockkit.state) RETURNS lockkit.state LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  s.run_until := NULL;
  s.run_attempt := NULL;
  s.run_done := NULL;
  s.run_saver := NULL;
  s.run_beginner := NULL;
  s.run_fresh := NULL;
  s.run_found := NULL;
  s.value := NULL;
  s.changed := true;
  RETURN s;
END $$;

-- rouse notifies the claims that wait for a finished record, the first claim that would be
-- admitted now, and the first one before it for which only kept holds leave no room. The last
-- one keeps its place. So does a fair claim until it asks, and its weight counts for the fair
-- claims behind it. Any other claim has to ask again.
CREATE OR REPLACE FUNCTION lockkit.rouse(_key bytea, s lockkit.state) RETURNS lockkit.state LANGUAGE plpgsql AS $$
DECLARE
  everything CONSTANT bigint := 2147483647;
  kept lockkit.place[] := '{}';
  p lockkit.place;
  held bigint;
  later bigint; -- of these, what is kept
  own bigint;
  ahead bigint := 0;
  lowest bigint := everything;
  need bigint;
  most bigint;
  roused boolean := false;
  hinted boolean;
  seen integer := 0;
  -- A stuck listener somewhere must not make this transaction fail.
  room boolean := pg_notification_queue_usage() < 0.5;
BEGIN
  SELECT coalesce(sum(h.weight), 0), coalesce(sum(h.weight) FILTER (WHERE h.owner IS NULL), 0) INTO held, later
    FROM unnest(s.holds) h;
  hinted := later = 0;
  FOREACH p IN ARRAY s.places LOOP
    IF p.run AND s.run_done THEN
      IF room AND p.wake <> '' THEN
        PERFORM pg_notify(p.wake, encode(p.lease, 'hex') || ' ' || encode(_key, 'hex'));
      END IF;
      CONTINUE;
    END IF;
    IF roused AND s.run_done IS NOT TRUE THEN
      kept := kept || s.places[seen + 1 :]; -- the rest only waits
      EXIT;
    END IF;
    seen := seen + 1;
    IF NOT roused THEN
      own := coalesce((SELECT sum(h.weight) FROM unnest(s.holds) h WHERE h.owner = p.owner), 0);
      need := held - own + p.weight;
      most := p.cap;
      IF p.fair AND own = 0 THEN
        need := need + ahead;
        ahead := ahead + p.weight;
        lowest := least(lowest, p.cap);
        most := lowest;
      END IF;
      roused := need <= most AND p.wake <> '';
      IF roused OR NOT hinted AND need - later <= most AND p.wake <> '' THEN
        hinted := true;
        IF room THEN
          PERFORM pg_notify(p.wake, encode(p.lease, 'hex') || ' ' || encode(_key, 'hex'));
        END IF;
        IF roused AND NOT p.fair THEN
          CONTINUE;
        END IF;
      END IF;
    END IF;
    kept := kept || p;
  END LOOP;
  s.places := kept;
  RETURN s;
END $$;
