-- Release deletes the owner's plain key, or keeps the key taken for a while without a
-- holder.
--
-- KEYS[1]  the key
-- ARGV     1 'release', 2 owner; to keep the key taken: 3 the ms for which it stays
--          taken, 4 its value for that time, 5 '1' if it stays taken at least until it
--          would have expired
-- answer   0  it was held, {2}  it was not: OK and LOST of clock.lua
--
-- A server out of memory refuses a SET as the first write of a script, but not after the
-- PEXPIRE. The PEXPIRE itself changes nothing, because a user may lack the right to SET.
-- So out of memory the server refuses the SET of a key that never expires.

if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return {2}
end
if ARGV[3] then
  local keep, left = tonumber(ARGV[3]), redis.call('PTTL', KEYS[1])
  if ARGV[5] then
    keep = math.max(keep, left)
  end
  if left > 0 then
    redis.call('PEXPIRE', KEYS[1], left)
  end
  redis.call('SET', KEYS[1], ARGV[4], 'PX', keep)
else
  redis.call('DEL', KEYS[1])
end
return 0
