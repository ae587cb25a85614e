-- locks is for people: what is held, waited for and recorded at this moment.
CREATE OR REPLACE VIEW lockkit.locks AS
SELECT convert_from(k.key, 'UTF8') AS key, k.token,
  (SELECT count(*) FROM unnest(k.holds) h WHERE h.until > clock_timestamp()) AS holds,
  (SELECT sum(h.weight) FROM unnest(k.holds) h WHERE h.until > clock_timestamp()) AS weight,
  (SELECT count(*) FROM unnest(k.places) p WHERE p.until > clock_timestamp()) AS waiting,
  CASE WHEN k.run_until > clock_timestamp() THEN k.run_attempt END AS attempt,
  CASE WHEN k.run_until > clock_timestamp() THEN k.run_done END AS done,
  k.until
FROM lockkit.keys k WHERE k.until > clock_timestamp();
