-- begin_run starts a run under an admitted claim, unless its lease has begun it already.
CREATE OR REPLACE FUNCTION lockkit.begin_run(s lockkit.state, _now timestamptz, _lease bytea, _value bytea, _retain bigint)
RETURNS lockkit.state LANGUAGE plpgsql AS $$
BEGIN
  IF _value IS NULL OR s.run_until IS NOT NULL AND s.run_beginner = _lease THEN
    RETURN s;
  END IF;
  IF s.run_until IS NULL THEN
    s.run_attempt := 1;
    s.run_fresh := true;
    s.run_found := NULL;
    s.value := _value;
    s.changed := true;
  ELSE
    s.run_found := (s.run_until, s.run_saver, s.run_beginner, s.run_fresh)::lockkit.found;
    s.run_attempt := s.run_attempt + 1;
    s.run_fresh := false;
  END IF;
  s.run_until := _now + lockkit.ms(_retain);
  s.run_done := false;
  s.run_saver := NULL;
  s.run_beginner := _lease;
  RETURN s;
END $$;

-- admit is the rule of admission. _value is null for a claim without a record.
--
-- code   0 granted, 1 busy, 2 the lease was released before, 3 heavier than the
--        hold that it joins, 4 answered by a finished record
-- after  when the first of those in the way is gone
CREATE OR REPLACE FUNCTION lockkit.admit(INOUT s lockkit.state, _now timestamptz,
  _lease bytea, _owner bytea, _via bytea, _weight bigint, _cap bigint, _ttl bigint,
  _fair boolean, _wait boolean, _least bigint, _wake text, _value bytea, _retain bigint,
  OUT code integer, OUT who bytea, OUT fence bigint, OUT after timestamptz) LANGUAGE plpgsql AS $$
DECLARE
  everything CONSTANT bigint := 2147483647;
  waiter_life CONSTANT bigint := 10000;
  own lockkit.hold;
  best bigint;
  total bigint;
  lowest bigint := _cap;
  p lockkit.place;
  again lockkit.place;
BEGIN
  fence := 0;
  who := _owner;
  IF _value IS NOT NULL AND s.run_done THEN
    code := 4;
    RETURN;
  END IF;

  SELECT * INTO own FROM unnest(s.holds) h WHERE h.lease = _lease;
  IF FOUND THEN
    s.holds := ARRAY(SELECT CASE WHEN h.lease = _lease
      THEN (h.lease, h.owner, h.weight, greatest(h.until, _now + lockkit.ms(_ttl)))::lockkit.hold ELSE h END FROM unnest(s.holds) h);
    IF s.run_until IS NULL THEN
      s := lockkit.begin_run(s, _now, _lease, _value, _retain);
    END IF;
    IF _weight = everything THEN
      s.token := greatest(s.token, _least);
      fence := s.token;
    END IF;
    who := own.owner;
    code := 0;
    RETURN;
  END IF;

  IF EXISTS (SELECT FROM unnest(s.tombs) t WHERE t.lease = _lease) THEN
    code := 2;
    RETURN;
  END IF;

  best := (SELECT max(h.weight) FROM unnest(s.holds) h WHERE h.owner = _via);
  IF best IS NOT NULL THEN
    who := _via;
  ELSE
    best := (SELECT max(h.weight) FROM unnest(s.holds) h WHERE h.owner = _owner);
  END IF;
  IF _weight > best THEN
    code := 3;
    RETURN;
  END IF;

  SELECT _weight + coalesce(sum(h.weight), 0), min(h.until) INTO total, after
    FROM unnest(s.holds) h WHERE h.owner IS DISTINCT FROM who;
  IF _fair AND best IS NULL THEN
    -- Earlier fair waiters count as if they held already, so a claim that is
    -- admitted before them takes nothing from them.
    FOREACH p IN ARRAY s.places LOOP
      EXIT WHEN p.lease = _lease;
      IF p.fair THEN
        total := total + p.weight;
        lowest := least(lowest, p.cap);
        after := least(after, p.until);
      END IF;
    END LOOP;
  END IF;
  IF total > lowest THEN
    code := 1;
    IF _wait THEN
      again := (_lease, _owner, _weight, _cap, _fair, _value IS NOT NULL, _wake,
        _now + lockkit.ms(least(_ttl, waiter_life)))::lockkit.place;
      IF EXISTS (SELECT FROM unnest(s.places) q WHERE q.lease = _lease) THEN
        s.places := ARRAY(SELECT CASE WHEN q.lease = _lease THEN again ELSE q END FROM unnest(s.places) q);
      ELSE
        s.places := s.places || again;
      END IF;
    END IF;
    RETURN;
  END IF;

  s.places := ARRAY(SELECT q FROM unnest(s.places) q WHERE q.lease <> _lease);
  s := lockkit.begin_run(s, _now, _lease, _value, _retain);
  IF _weight = everything THEN
    IF best = everything THEN
      s.token := greatest(s.token, _least); -- the last grant is theirs
    ELSE
      s.token := greatest(s.token + 64, lockkit.micros(_now), _least);
    END IF;
    fence := s.token;
  END IF;
  s.holds := s.holds || (_lease, who, _weight, _now + lockkit.ms(_ttl))::lockkit.hold;
  code := 0;
END $$;

-- acquire tries once to admit a claim. Lengths of time are in ms, bytes in the
-- answer are in hex.
--
-- The short way is one statement, for a key of which nothing is alive. Any other
-- row it only locks, for what follows.
CREATE OR REPLACE FUNCTION lockkit.acquire(_key bytea,
  _lease bytea, _owner bytea, _via bytea, _weight bigint, _cap bigint, _ttl bigint,
  _fair boolean, _wait boolean, _least bigint, _wake text, _value bytea, _retain bigint,
  OUT code integer, OUT who text, OUT fence bigint, OUT after bigint,
  OUT attempt bigint, OUT retain bigint, OUT value text)
LANGUAGE plpgsql SET lock_timeout = '1s' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  everything CONSTANT bigint := 2147483647;
  moment timestamptz := clock_timestamp();
  begins boolean := _value IS NOT NULL;
  ends timestamptz := moment + lockkit.ms(greatest(_ttl, _retain));
  highest bigint;
  a record;
BEGIN
  PERFORM lockkit.begin_call();
  IF begins THEN
    SELECT k.run_attempt, ceil(extract(epoch FROM k.run_until - moment) * 1000)::bigint, encode(k.value, 'hex')
      INTO attempt, retain, value
      FROM lockkit.keys k WHERE k.key = _key AND k.run_done AND k.run_until > moment;
    IF FOUND THEN
      code := 4;
      RETURN;
    END IF;
  END IF;

  INSERT INTO lockkit.keys AS k (key, token, until, due, written, holds,
      run_until, run_attempt, run_done, run_beginner, run_fresh, value)
    VALUES (_key, greatest(lockkit.micros(moment), _least), ends, lockkit.bucket(ends), moment,
      ARRAY[(_lease, _owner, _weight, moment + lockkit.ms(_ttl))::lockkit.hold],
      CASE WHEN begins THEN moment + lockkit.ms(_retain) END, CASE WHEN begins THEN 1 END,
      CASE WHEN begins THEN false END, CASE WHEN begins THEN _lease END, CASE WHEN begins THEN true END, _value)
    ON CONFLICT (key) DO UPDATE SET
      token = CASE WHEN _weight = everything THEN greatest(k.token + 64, EXCLUDED.token) ELSE k.token END,
      until = EXCLUDED.until, due = lockkit.due(k.due, EXCLUDED.until), written = EXCLUDED.written,
      holds = EXCLUDED.holds, places = '{}', tombs = '{}',
      run_until = EXCLUDED.run_until, run_attempt = EXCLUDED.run_attempt, run_done = EXCLUDED.run_done,
      run_saver = NULL, run_beginner = EXCLUDED.run_beginner, run_fresh = EXCLUDED.run_fresh, run_found = NULL, value = EXCLUDED.value
      WHERE k.until <= clock_timestamp()
    RETURNING k.token INTO fence;
  IF FOUND THEN
    -- Read after the row is there: the transaction that deleted an earlier row has
    -- committed.
    SELECT f.token INTO highest FROM lockkit.floor f;
    IF highest + 64 > fence THEN
      fence := highest + 64;
      UPDATE lockkit.keys k SET token = fence WHERE k.key = _key;
    END IF;
    code := 0;
    who := encode(_owner, 'hex');
    IF _weight < everything THEN
      fence := 0;
    END IF;
    IF begins THEN
      attempt := 1;
      retain := _retain;
      value := encode(_value, 'hex');
    END IF;
    IF random() < 0.03 THEN
      PERFORM lockkit.sweep(100);
    END IF;
    RETURN;
  END IF;

  SELECT * INTO a FROM lockkit.load(_key);
  moment := a._now;
  SELECT * INTO a FROM lockkit.admit(a.s, moment, _lease, _owner, _via, _weight, _cap, _ttl,
    _fair, _wait, _least, _wake, _value, _retain);
  PERFORM lockkit.settle(_key, moment, a.s, a.code, _wait);
  SELECT * INTO code, who, fence, after, attempt, retain, value
    FROM lockkit.answer(_key, moment, a.s, a.code, a.who, a.fence, a.after, begins);
END $$;

-- settle writes what admit has decided.
CREATE OR REPLACE FUNCTION lockkit.settle(_key bytea, _now timestamptz, s lockkit.state, _code integer, _wait boolean)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF _code IN (0, 4) THEN
    IF cardinality(s.places) > 0 THEN
      s := lockkit.rouse(_key, s);
    END IF;
    PERFORM lockkit.save(_key, _now, s);
    RETURN;
  END IF;
  -- A refusal promises nothing that would have to outlast a crash.
  PERFORM set_config('synchronous_commit', 'off', true);
  IF _code = 1 AND _wait OR s.mended THEN
    PERFORM lockkit.save(_key, _now, s);
  END IF;
END $$;

-- answer is what the client is told. If it is busy, attempt is how many wait.
CREATE OR REPLACE FUNCTION lockkit.answer(_key bytea, _now timestamptz, s lockkit.state,
  _code integer, _who bytea, _fence bigint, _after timestamptz, _begins boolean,
  OUT code integer, OUT who text, OUT fence bigint, OUT after bigint,
  OUT attempt bigint, OUT retain bigint, OUT value text) LANGUAGE plpgsql AS $$
BEGIN
  code := _code;
  fence := _fence;
  who := encode(_who, 'hex');
  after := greatest(ceil(extract(epoch FROM _after - _now) * 1000)::bigint, 1);
  IF _code = 1 THEN
    attempt := cardinality(s.places);
  ELSIF _begins AND _code IN (0, 4) THEN
    attempt := s.run_attempt;
    retain := greatest(floor(extract(epoch FROM s.run_until - _now) * 1000)::bigint, 1);
    IF s.changed THEN
      value := encode(s.value, 'hex');
    ELSE
      value := (SELECT encode(k.value, 'hex') FROM lockkit.keys k WHERE k.key = _key);
    END IF;
  END IF;
END $$;

-- sweep deletes up to _most rows of which nothing is alive and returns their
-- number. It waits for no lock, so it can be called at any time.
CREATE OR REPLACE FUNCTION lockkit.sweep(_most integer) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  moment timestamptz := clock_timestamp();
  n integer := 0;
  highest bigint;
BEGIN
  PERFORM FROM lockkit.floor FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0; -- another session does it
  END IF;
  WITH gone AS (
    DELETE FROM lockkit.keys WHERE key = ANY (ARRAY(
      SELECT k.key FROM lockkit.keys k
        WHERE k.due < lockkit.bucket(moment) AND k.until <= moment
        ORDER BY k.due LIMIT _most FOR UPDATE SKIP LOCKED))
    RETURNING token)
  SELECT count(*), max(token) INTO n, highest FROM gone;
  UPDATE lockkit.floor SET token = highest WHERE token < highest;
  RETURN n;
END $$;
