-- Handover releases one lease and admits another, in one step.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'handover <flags> <id> <wake>', see state.lua; flags: f fair, y who
--          waits comes first, c cluster; 2 lease to release, 3 lease to admit, 4
--          its owner, 5 TTL in ms, 6 how many tokens after the one in the answer
--          are the lease's too. Where one of them is not the usual: 7 weight, 8
--          limit, 9 least token
-- answer   token       granted
--          {BUSY, ms}  released, but not granted
--          {LOST}      it was not held, and nothing has changed
--
-- The first write is a PEXPIRE, which a server out of memory accepts; after it
-- the others are accepted too.

local from, lease, owner = ARGV[2], ARGV[3], ARGV[4]
local ttl, spare = tonumber(ARGV[5]), tonumber(ARGV[6])
local weight, limit, least = tonumber(ARGV[7] or ALL), tonumber(ARGV[8] or ALL), tonumber(ARGV[9] or 0)
local fair, yields = has('f'), has('y')

local flat = redis.call('HGETALL', key)
local field, to = 'h:' .. from, 'h:' .. lease
if #flat <= 4 and weight == ALL and from ~= lease then
  -- A lone exclusive hold and perhaps its token, in either order.
  local i = flat[1] == field and 1 or flat[3] == field and 3
  local since, ms, before
  if i then
    since, ms, before = string.match(flat[i + 1], '^(%d+) (%d+) %S+()')
    since, before = tonumber(since), before > #flat[i + 1] and since
  end
  if i and #flat == 4 then
    before = flat[4 - i] == 't' and flat[5 - i]
  end
  if before and since <= us and us < since + ms * 1000 then
    local token = math.max(tonumber(before) + 1, us, least)
    local ms, last = ttl, token + spare
    if last > us then
      ms = math.max(ms, math.ceil((last - us) / 1000) + 1)
    end
    redis.call('PEXPIRE', key, ms)
    redis.call('HSET', key, to, stamp() .. ' ' .. ARGV[5] .. ' ' .. owner .. ' 2147483647', 't', last)
    redis.call('HDEL', key, field)
    return token
  end
end

local s = load(flat, from)
if not s.own then
  return {LOST}
end
local waits, drop, set = s.waits, s.stale, {}
drop[#drop + 1] = field
hold(s, s.own.owner, -s.own.weight)
s.own = nil
local refused, woken = false, false
for i = 1, #flat, 2 do
  -- Who was released before is not admitted, and who holds asks for itself.
  refused = refused or flat[i] == 'd:' .. lease or flat[i] == to
end
local first, last = place(s, lease)
local fits, after = false, nil
if not refused then
  if yields and #s.waits > 1 and s.sum < ALL then
    woken = wake(s, lease)
    refused = woken
    first, last = place(s, lease)
  end
  if not refused then
    fits, after = room(s, lease, owner, s.owners[owner], weight, limit, fair)
  end
end
if fits then
  if first then
    s.waits = string.sub(s.waits, 1, first - 1) .. string.sub(s.waits, last + 1)
  end
  hold(s, owner, weight)
  s.own = {deadline = now + ttl, weight = weight, owner = owner}
  set[1], set[2] = to, text(ttl, owner, weight)
  if weight == ALL then
    s.token = math.max(s.token + 1, us, least) + spare
    set[3], set[4], s.untold = 't', s.token, false
  end
end
if #s.waits > 1 and s.sum < ALL and not woken then
  wake(s)
end
finish(s, waits, set, drop)
if not fits then
  return {BUSY, math.max((after or now) - now, 1)}
end
return weight == ALL and s.token - spare or 0
