import type { QueryClient, QueryKey } from '@tanstack/react-query'

/** How soon something is read again, and whether a reading that is under way is broken off for it. */
export type Pace = keyof typeof PACES

const PACES = {
  /** Something happened: events that belong together come within this time. */
  now: { afterMs: 15, breaksOff: true },
  /** A value arrived; whoever asked for it waits for it already. */
  arrival: { afterMs: 150, breaksOff: false },
  /** The run goes on and all of it changes all the time; each reading is finished, so that there is something to see. */
  running: { afterMs: 1_000, breaksOff: false },
} as const

/** Has queries read anew, each once for several events that come together. */
export class Refresher {
  private readonly marked = new Map<Pace, Map<string, QueryKey>>()
  private readonly timers = new Map<Pace, ReturnType<typeof setTimeout>>()

  constructor(private readonly client: QueryClient) {}

  mark(keys: readonly QueryKey[], pace: Pace): void {
    if (!keys.length) return
    const marked = this.marked.get(pace) ?? new Map<string, QueryKey>()
    this.marked.set(pace, marked)
    for (const key of keys) marked.set(JSON.stringify(key), key)
    if (this.timers.has(pace)) return
    const { afterMs, breaksOff } = PACES[pace]
    this.timers.set(
      pace,
      setTimeout(() => {
        this.timers.delete(pace)
        this.read(pace, breaksOff)
      }, afterMs),
    )
  }

  stop(): void {
    for (const timer of this.timers.values()) clearTimeout(timer)
  }

  private read(pace: Pace, cancelRefetch: boolean): void {
    const keys = [...(this.marked.get(pace)?.values() ?? [])]
    this.marked.delete(pace)
    for (const queryKey of keys) void this.client.invalidateQueries({ queryKey }, { cancelRefetch })
  }
}
