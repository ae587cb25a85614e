-- Release of a hold beside which there is but its token or its record. What it reads is
-- flat, for release.lua.
--
-- after    clock.lua (key, OK), only.lua (value), look.lua (us, now, REST, isString, fields),
--          and relay.lua
-- KEYS[1], ARGV and answer are those of only.lua

local flat = fields(value)
if #flat <= 4 and not ARGV[6] and (not ARGV[5] or ARGV[5] == '0') then
  -- The hold, and perhaps the token, in either order: one at 1, the other at 3.
  local field = 'h:' .. ARGV[2]
  local i = flat[1] == field and 1 or flat[3] == field and 3
  if i then
    local since, ms = string.match(flat[i + 1], '^(%d+) (%d+)')
    local other = 4 - i
    local first = #flat == 2 and since or flat[other] == 't' and flat[other + 1]
    if first and math.max(first + REST, tonumber(ARGV[4]) or us) < us and us < math.min(since, us) + ms * 1000 then
      redis.call('DEL', key)
      return OK
    end
  end
end
if not isString and ARGV[6] and ARGV[5] == '0' and ARGV[8] ~= '0' then
  local field, held, fresh, told, more = 'h:' .. ARGV[2], false, nil, false, false
  for i = 1, #flat, 2 do
    local name, stored = flat[i], flat[i + 1]
    if name == field then
      local since, ms, rest = string.match(stored, '^(%d+) (%d+) %S+(.*)$')
      held = since + REST < us and us < since + ms * 1000
      fresh = rest == '' and since
    elseif name == 't' then
      told, more = true, more or stored + REST >= us
    elseif name ~= 'r' and name ~= 'v' then
      more = true
      break
    end
  end
  if held and not more then
    redis.call('PEXPIRE', key, ARGV[8])
    local set = {'HSET', key, 'r', now + ARGV[8] .. ' ' .. ARGV[6] .. ' ' .. ARGV[7] .. ' ' .. ARGV[2], 'v', ARGV[9]}
    if fresh and not told then
      set[7], set[8] = 't', fresh
    end
    redis.call(unpack(set))
    redis.call('HDEL', key, field)
    return OK
  end
end
