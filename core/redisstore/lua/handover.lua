-- Handover for all but the simplest state. See pass.lua for arguments and answers.

local weight, limit = tonumber(ARGV[7] or ALL), tonumber(ARGV[8] or ALL)
local fair, yields = has('f'), has('y')
local flat = fields(value)
local field, to = 'h:' .. from, 'h:' .. lease
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
