import type { Query, QueryClient, QueryKey } from '@tanstack/react-query'

/** How soon queries are refetched, and whether fetches in progress are cancelled for it. */
export type Pace = keyof typeof PACES

const PACES = {
  /** The state changed; related events arrive within this time. */
  now: { afterMs: 15, breaksOff: true },
  /** A value arrived that a query is already waiting for. */
  arrival: { afterMs: 150, breaksOff: false },
  /** The run continues and everything changes all the time; fetches are completed, so that something is shown. */
  running: { afterMs: 1_000, breaksOff: false },
} as const

/** Refetches queries, each once for several events in quick succession. */
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

  private read(pace: Pace, breaksOff: boolean): void {
    const keys = [...(this.marked.get(pace)?.values() ?? [])]
    this.marked.delete(pace)
    for (const queryKey of keys) {
      const busy = this.client.getQueryCache().findAll({ queryKey, fetchStatus: 'fetching' })
      // TanStack never breaks off the first fetch of a query, whose response may be of the state before.
      if (breaksOff) for (const query of busy) if (isFirstFetch(query)) query.reset()
      const read = this.client.invalidateQueries({ queryKey }, { cancelRefetch: breaksOff })
      // A fetch that was not broken off may have missed the change, too.
      if (!breaksOff && busy.length > 0) {
        const again = busy.map((query) => query.queryKey)
        void read.then(() => this.mark(again, pace))
      }
    }
  }
}

function isFirstFetch({ state }: Query): boolean {
  return state.data === undefined
}
