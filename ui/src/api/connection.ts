import { create } from 'zustand'

/** State of the connection to the server. */
interface Connection {
  isConnected: boolean
  /** When the connection was lost, in milliseconds; null while connected. */
  lostAt: number | null
  /** The server requires its token. */
  needsLogin: boolean
  /** The run shown if it no longer exists, with the reason if the server gave one. */
  gone: { run: string; reason: string } | null
  /** Incremented each time the user asks to reconnect immediately. */
  attempt: number
  connected: () => void
  lost: () => void
  tryNow: () => void
}

export const useConnection = create<Connection>()((set) => ({
  isConnected: true,
  lostAt: null,
  needsLogin: false,
  gone: null,
  attempt: 0,
  connected: () => set({ isConnected: true, lostAt: null }),
  lost: () => set((was) => ({ isConnected: false, lostAt: was.lostAt ?? Date.now() })),
  tryNow: () => set((was) => ({ attempt: was.attempt + 1 })),
}))
