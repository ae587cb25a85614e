'use strict';
// Obeys the commands on standard input: driver.go of package neighbours describes the lines.

const readline = require('readline');
const Redis = require('ioredis');
const Redlock = require('redlock');

const servers = process.argv.slice(2).map((addr) => {
	const [host, port] = addr.split(':');
	return new Redis(Number(port), host);
});
const redlock = new Redlock(servers, {retryCount: 0});
redlock.on('clientError', () => {});

async function run(locks, verb, name, ttl) {
	switch (verb) {
	case 'trylock':
		try {
			locks.set(name, await redlock.lock(name, Number(ttl)));
			return 'yes';
		} catch (e) {
			if (e.name === 'LockError' && e.message.startsWith('Exceeded')) return 'no';
			throw e;
		}
	case 'extend':
		await locks.get(name).extend(Number(ttl));
		return 'done';
	case 'unlock':
		await locks.get(name).unlock();
		return 'done';
	}
	throw new Error('no verb ' + verb);
}

const threads = new Map(); // by who: its locks, and the end of its last command
console.log('0 ready');
readline.createInterface({input: process.stdin}).on('line', (line) => {
	const [number, who, verb, , ...args] = line.split(' ');
	if (!threads.has(who)) threads.set(who, {locks: new Map(), last: Promise.resolve()});
	const thread = threads.get(who);
	thread.last = thread.last.then(() => run(thread.locks, verb, ...args)).then(
		(text) => console.log(number + ' ' + text),
		(e) => console.log(number + ' error ' + e.name + ' ' + String(e.message).replace(/\s+/g, ' ')));
});
