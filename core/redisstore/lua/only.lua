-- Release gives up a hold or a place in line, and plants a tombstone for a
-- lease that is not held, so that an acquire which comes late is refused. This
-- part does it for a hold that is all there is, release.lua for any other.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'release', 2 lease, 3 ms to remember an unknown lease, 4 ms to keep
--          the key taken, 5 flags: c cluster, 6 prefix of the wake channels
-- answer   {OK}    it was held or waiting
--          {LOST}  it was neither
--
-- The first write is a DEL, HDEL or PEXPIRE, which a server out of memory
-- accepts; after it the others are accepted too.

local flat = redis.call('HGETALL', key)
if #flat <= 4 and ARGV[4] == '0' then
  -- The hold, and perhaps the token, in either order.
  local field = 'h:' .. ARGV[2]
  local i = flat[1] == field and 1 or flat[3] == field and 3
  if i and (#flat == 2 or flat[4 - i] == 't' and tonumber(flat[5 - i]) < us)
    and tonumber(string.match(flat[i + 1], '^%d+')) > now then
    redis.call('DEL', key)
    return {OK}
  end
end
