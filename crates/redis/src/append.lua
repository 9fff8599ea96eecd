-- ARGV: 4 kind, 5 data, 6 whether there is a key, 7 key, 8 whether there is an identifier, 9 identifier,
-- 10 most messages or keys, 11 age of messages, 12 time for which identifiers are known
local most, age, window = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])

-- Identifiers of this window and of the one before. Each key is gone when its turn comes again.
local turn = math.floor(now / window)
local these, earlier = KEYS[5 + turn % 2], KEYS[6 - turn % 2]
if ARGV[8] == '1' then
  local known = redis.call('HGET', these, ARGV[9]) or redis.call('HGET', earlier, ARGV[9])
  if known then return { 'stored', epoch, known } end
end

-- An empty key is none: the order of keys has a message without one under the empty one.
local key = ARGV[6] == '1' and ARGV[7] ~= '' and ARGV[7]
local offset = math.max((now - BASE) * 4096, last + 1)
if ARGV[4] == 'latest' then
  redis.call('ZADD', KEYS[3], text(offset), ARGV[7])
  redis.call('HSET', KEYS[4], ARGV[7], ARGV[5])
  while redis.call('ZCARD', KEYS[3]) > most do
    redis.call('HDEL', KEYS[4], redis.call('ZPOPMIN', KEYS[3])[1])
  end
  redis.call('PEXPIRE', KEYS[3], age)
  redis.call('PEXPIRE', KEYS[4], age)
else
  local fields = { 'before', text(last), 'data', ARGV[5] }
  if key then fields[5], fields[6] = 'key', key end
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', most, id_of(offset), unpack(fields))
  redis.call('XTRIM', KEYS[2], 'MINID', '=', text(now - age))
  redis.call('PEXPIRE', KEYS[2], age)
end
redis.call('HSET', KEYS[1], 'last', text(offset), 'kind', ARGV[4], 'until', text(now + age))
redis.call('PEXPIRE', KEYS[1], text(age + DAY))
if ARGV[8] == '1' then
  redis.call('HSET', these, ARGV[9], text(offset))
  redis.call('PEXPIREAT', these, text((turn + 2) * window))
end

local news = epoch .. ' ' .. text(last) .. ' ' .. text(offset) .. ' ' .. (key and #key or -1) .. '\n' .. (key or '') .. ARGV[5]
local major = tonumber(string.match(server, 'redis_version:(%d+)'))
redis.call(major >= 7 and 'SPUBLISH' or 'PUBLISH', KEYS[7], news)
return { 'stored', epoch, text(offset) }
