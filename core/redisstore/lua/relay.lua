-- Release of the only hold of a string whose first waiter can be granted the key by
-- message. It does what state.lua and release.lua would do, in half the time; the
-- reasons stand there.
--
-- after    clock.lua (key, stamp, OK), only.lua (value),
--          look.lua (us, now, EXCLUSIVE, STEP, REST, WAITER_LIFE, WINDOW, ASKED, put, beyond)
-- KEYS[1], ARGV and answer are those of only.lua

if type(value) == 'string' then
  local lease, since, ms, last, waits =
    string.match(value, '^f\th:(%S+) (%d+) (%d+) %S+ 2147483647\tt (%d+)\tw (\n.*)$')
  if lease == ARGV[2] and now < (since - since % 1000) / 1000 + ms
    and not string.find(waits, '\n' .. lease .. ' ', 1, true) then
    -- The first line of the list: an exclusive claim, of kind 4 or 5 (see state.lua).
    local other, deadline, owner, id, rest =
      string.match(waits, '^\n(%S+) (%d+) [45] 2147483647 2147483647 (%S+) (%S+)\n(.*)$')
    local left = other and deadline - now
    local channel = string.match(ARGV[1], '^%a+ %a* %S+ (.*)$')
    -- PUBLISH also counts subscribers to a pattern of channels.
    if other and left >= WAITER_LIFE - ASKED and left <= WAITER_LIFE
      and tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel .. id)[2] or 0) > 0 then
      local token, digits = us, stamp
      local next = math.max(last, (tonumber(ARGV[4]) or 0) - REST) + STEP
      if next > us then
        token = next
        digits = string.format('%.0f', token)
      end
      ms = WAITER_LIFE - left + WINDOW
      local hold = 'f\th:' .. other .. ' ' .. stamp .. ' ' .. ms .. ' ' .. owner .. ' ' .. EXCLUSIVE .. '\tt ' .. digits
      if rest ~= '' then
        put(hold .. '\tw \n' .. rest, beyond(WAITER_LIFE, token))
      else
        put(hold, beyond(ms, token))
      end
      local got = redis.pcall('PUBLISH', channel .. id, key .. ' ' .. other .. '\n' .. deadline .. ' ' .. digits .. ' ' .. ms)
      if type(got) == 'number' and got > 0 then
        return OK
      end
      -- No process has heard it. The next files go on with value, as it was before, and
      -- write over this.
    end
  end
end
