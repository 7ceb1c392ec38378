import { expect, test } from 'vitest'
import { effectOf, effectOfRecord, newer, read } from './changes'
import { keys } from './keys'
import type { ServerEvent, Session } from './types'

const paused = {
  id: '1',
  created: 100,
  state: 'paused',
  step: 3,
  node: '',
  hits: 0,
  watchpoints: 1,
  outdated: false,
  last_event: 10,
  ranks: [
    { rank: 0, step: 3 },
    { rank: 1, step: 3 },
  ],
} as unknown as Session

function event(kind: ServerEvent['kind'], data: object): ServerEvent {
  return { number: 11, time: 0, kind, data: { ...data } }
}

test('another step refetches everything of the step, and the hits', () => {
  const after = { ...paused, step: 4, last_event: 11 }
  expect(effectOf('1', event('state', after), paused).session?.step).toBe(4)
  const effect = effectOfRecord('1', paused, after)
  expect(effect.stale).toEqual([keys.step('1'), keys.hits('1')])
  expect(effect.pace).toBe('now')
})

test('a running session is refetched now and then, and immediately when it stops', () => {
  const running = { ...paused, state: 'running' } as Session
  expect(effectOfRecord('1', paused, running).pace).toBe('now')
  expect(effectOfRecord('1', running, { ...running, step: 4, last_event: 12 }).pace).toBe('running')
  expect(effectOfRecord('1', running, { ...paused, step: 5, last_event: 13 }).pace).toBe('now')
})

test('a state that looks the same changes nothing else', () => {
  expect(effectOfRecord('1', paused, { ...paused, last_event: 11 }).stale).toEqual([])
})

test('hits that are outdated are shown as such, with the marks in the tree', () => {
  const effect = effectOfRecord('1', paused, { ...paused, outdated: true, last_event: 11 })
  expect(effect.stale).toEqual([keys.watchpoints('1'), keys.hits('1')])
})

test('an event older than the cached session is ignored', () => {
  const effect = effectOf('1', event('state', { ...paused, step: 2, last_event: 9 }), paused)
  expect(effect.session).toBe(paused)
  expect(effect.stale).toEqual([])
})

test('a restarted session replaces its predecessor, though its events count from 1 again', () => {
  const restarted = { ...paused, created: 200, last_event: 1 }
  expect(newer(paused, restarted)).toBe(restarted)
  expect(newer(undefined, paused)).toBe(paused)
})

test('an event that arrives while the session is read is not undone by the response', async () => {
  const running = { ...paused, state: 'running' } as Session
  let cached: Session | undefined = running
  const answer = read(() => cached, Promise.resolve(running))
  cached = { ...paused, last_event: 11 }
  expect(await answer).toBe(cached)
  expect(await read(() => cached, Promise.resolve({ ...running, last_event: 12 }))).toHaveProperty(
    'state',
    'running',
  )
})

test('a check updates the number of hits before anything is refetched', () => {
  const effect = effectOf('1', event('hits', { step: 3, total: 7 }), paused)
  expect(effect.session?.hits).toBe(7)
  expect(effect.stale).toEqual([keys.hits('1'), keys.watchpoints('1'), keys.step('1')])
  expect(effectOf('1', event('hits', { step: 9, total: 7 }), paused).session).toBeUndefined()
})

test('new findings, fewer findings, and the end of a training refetch the findings', () => {
  expect(effectOf('1', event('findings', { rules: ['loss-zero'] }), paused).stale).toEqual([
    keys.findings('1'),
  ])
  const withOne = { ...paused, findings: 1 }
  expect(effectOfRecord('1', withOne, { ...withOne, findings: 0 }).stale).toEqual([keys.findings('1')])
  expect(effectOfRecord('1', paused, { ...paused, state: 'finished' }).stale).toContainEqual(
    keys.findings('1'),
  )
})

test('one rank of several moves', () => {
  const effect = effectOf('1', event('rank', { rank: 1, step: 4 }), paused)
  expect(effect.session?.ranks.map((rank) => rank.step)).toEqual([3, 4])
  expect(effect.stale).toEqual([])
  const later = { ...paused, last_event: 11 }
  expect(effectOf('1', event('rank', { rank: 1, step: 4 }), later).session).toBeUndefined()
})
