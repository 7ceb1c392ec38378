import { create } from 'zustand'

export type Tone = 'info' | 'warning' | 'error'

/** Something that happened, told in the bar at the foot of the page. */
export interface Message {
  /** Of one kind there is one message, with the newest words. */
  kind: string
  tone: Tone
  text: string
  /** How often in a row it was told with these words. */
  times: number
  /** Milliseconds since 1970. */
  at: number
}

interface Messages {
  /** The oldest first. */
  all: Message[]
  dismiss: (kind?: string) => void
}

const MOST = 30

export const useMessages = create<Messages>()((set) => ({
  all: [],
  dismiss: (kind) =>
    set(({ all }) => ({ all: kind === undefined ? [] : all.filter((one) => one.kind !== kind) })),
}))

/** Tell a person something; `kind` is what later words about the same thing have in common. */
export function tell(text: string, tone: Tone = 'info', kind = text): void {
  useMessages.setState(({ all }) => {
    const before = all.find((one) => one.kind === kind)
    const times = before?.text === text ? before.times + 1 : 1
    const others = all.filter((one) => one !== before)
    return { all: [...others, { kind, tone, text, times, at: Date.now() }].slice(-MOST) }
  })
}
