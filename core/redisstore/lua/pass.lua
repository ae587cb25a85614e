-- Handover releases one lease and admits another, in one step. This part does it
-- for a hold that is all there is, handover.lua for any other.
--
-- KEYS[1]  the key
-- ARGV     1 'handover <flags> <id> <wake>', see state.lua; flags: f fair, y who
--          waits comes first, c cluster; 2 lease to release, 3 lease to admit, 4
--          its owner, 5 TTL in ms, 6 how many tokens after the one in the answer
--          are the lease's too. Where one of them is not the usual: 7 weight, 8
--          limit, 9 least token
-- answer   token       granted
--          {BUSY, ms}  released, but not granted
--          {LOST}      it was not held, and nothing has changed
--
-- A server out of memory accepts a PEXPIRE, and after it all else.

local from, lease, owner = ARGV[2], ARGV[3], ARGV[4]
local ttl, spare, least = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[9] or 0)
local value
if not ARGV[7] or ARGV[7] == '2147483647' then
  value = redis.pcall('GET', key)
end
if type(value) == 'string' and from ~= lease then
  local since, ms, _, holder, last = string.match(value, LONE)
  if holder == from and tonumber(since) <= us and us < since + ms * 1000 then
    local token = math.max((last == '' and since or last) + 1, us, least)
    value, last = stamp .. ' ' .. ARGV[5] .. ' ' .. owner .. ' ' .. lease, token + spare
    if last > us then
      value = string.format('%s %.0f ', value, last)
    end
    put(value, beyond(ARGV[5], last))
    return token
  end
end
