-- Card stores the cards of processes in one hash. Each card is a field with its
-- deadline in ms, a space and its text. This file is a whole script.
--
-- KEYS[1]  the hash
-- ARGV     1 'cards', or 1 'put', 2 process, 3 the lifetime of the card in ms, 4 its text,
--          5 '1' to delete expired cards
-- answer   for 'put' 0; for 'cards' {0, <process>, <text>, ...} with the cards that have not
--          expired

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local put = ARGV[1] == 'put'
local answer = {0}
if not put or ARGV[5] then
  local flat, gone = redis.call('HGETALL', KEYS[1]), 0
  for i = 1, #flat, 2 do
    local ends, text = string.match(flat[i + 1], '^(%d+) (.*)$')
    if not ends or tonumber(ends) <= now then
      gone = gone + 1
      if put and gone <= 1000 then
        redis.call('HDEL', KEYS[1], flat[i])
      end
    elseif not put then
      answer[#answer + 1] = flat[i]
      answer[#answer + 1] = text
    end
  end
end
if not put then
  return answer
end
local left, ms = redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])
redis.call('HSET', KEYS[1], ARGV[2], string.format('%.0f ', now + ms) .. ARGV[4])
redis.call('PEXPIRE', KEYS[1], math.max(left, ms))
return 0
