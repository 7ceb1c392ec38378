import { QueryClient, QueryObserver } from '@tanstack/react-query'
import { expect, test, vi } from 'vitest'
import { followRecord } from './events'
import { keys } from './keys'
import { Refresher, type Pace } from './refresh'
import type { Session } from './types'

const paused = { id: '1', created: 100, state: 'paused', step: 3, last_event: 10 } as unknown as Session

/** A query of a step, to whose requests the test responds; `shown` is what a panel shows of it. */
function observed(client: QueryClient) {
  const responses: ((value: string) => void)[] = []
  const observer = new QueryObserver(client, {
    queryKey: keys.step('1', 'node'),
    queryFn: () => new Promise<string>((resolve) => responses.push(resolve)),
    staleTime: Infinity,
  })
  const stop = observer.subscribe(() => {})
  return { responses, stop, shown: () => observer.getCurrentResult().data }
}

test.each<Pace>(['now', 'arrival', 'running'])(
  'a first request that began before a change is read again (%s)',
  async (pace) => {
    vi.useFakeTimers()
    const client = new QueryClient()
    const refresher = new Refresher(client)
    const { responses, stop, shown } = observed(client)
    refresher.mark([keys.step('1')], pace)
    await vi.advanceTimersByTimeAsync(1_000)
    responses[0]?.('of step 3')
    await vi.advanceTimersByTimeAsync(2_000)
    expect(responses).toHaveLength(2)
    responses[1]?.('of step 4')
    await vi.advanceTimersByTimeAsync(5_000)
    expect(responses).toHaveLength(2)
    expect(shown()).toBe('of step 4')
    stop()
    refresher.stop()
    vi.useRealTimers()
  },
)

test('another step is read, whether the event or the response to the command brings it', async () => {
  vi.useFakeTimers()
  const client = new QueryClient()
  client.setQueryData(keys.record('1'), paused)
  const refresher = new Refresher(client)
  const unfollow = followRecord(client, '1', refresher)
  await vi.advanceTimersByTimeAsync(50)
  const { responses, stop, shown } = observed(client)
  responses[0]?.('of step 3')
  await vi.advanceTimersByTimeAsync(50)
  // The response to the command; its event says nothing new afterwards.
  client.setQueryData(keys.record('1'), { ...paused, step: 2, last_event: 11 })
  client.setQueryData(keys.record('1'), { ...paused, step: 2, last_event: 12 })
  await vi.advanceTimersByTimeAsync(50)
  responses[1]?.('of step 2')
  await vi.advanceTimersByTimeAsync(50)
  expect(shown()).toBe('of step 2')
  expect(responses).toHaveLength(2)
  unfollow()
  stop()
  refresher.stop()
  vi.useRealTimers()
})
