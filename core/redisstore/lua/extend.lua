-- Extend makes a live hold last for its TTL from now, and never shortens it. `value` is
-- from extend_shortcuts.lua, and `load`, `save` and `text` from state.lua.
--
-- KEYS[1]  the key
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   OK      it is held
--          {LOST}  it is not

local lease, ttl = ARGV[2], tonumber(ARGV[3])
local s = load(value, lease, math.huge)
if s.own and now + ttl > s.own.deadline then
  s.own.deadline = now + ttl
  s.leases['h:' .. lease] = text(ttl, s.own.owner, s.own.weight)
  save(s, true)
elseif s.changed then
  -- An error is ignored, because this save only removes expired entries.
  pcall(save, s, true)
end
return s.own and OK or {LOST}
