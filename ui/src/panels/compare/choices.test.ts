import { expect, test } from 'vitest'
import type { DumpRecord, Session } from '~/api/types'
import { choices } from './choices'

const session = (id: string, name: string, dump = '') =>
  ({
    id,
    name,
    dump,
    state: 'paused',
    created: Number(id),
    framework: 'pytorch',
    framework_version: '2.13',
    capabilities: { live: dump === '' },
  }) as unknown as Session
const dump = (name: string, open: string | null = null) =>
  ({
    name,
    title: `title of ${name}`,
    session: open,
    framework: 'mindspore',
    framework_version: '2.10',
    modified: 1,
    problem: '',
  }) as unknown as DumpRecord

const sessions = [session('1', 'reference'), session('2', 'port', 'runs/port'), session('3', 'training')]
const dumps = [dump('runs/port', '2'), dump('runs/old'), dump('7')]

test('each run except the one shown can be chosen once, under a persistent name', () => {
  const runs = choices(sessions, dumps, '1', '')
  expect(runs.map((choice) => choice.value)).toEqual(['3', 'runs/port', 'runs/old', './7'])
})

test('all words must be in a name, a title or the framework', () => {
  expect(choices(sessions, dumps, '1', 'OLD mindspore').map((choice) => choice.value)).toEqual(['runs/old'])
  expect(choices(sessions, dumps, '1', 'old pytorch')).toEqual([])
})
