import type { Capabilities, Session } from '~/api/types'

/** Keys of the header's texts under `why`. */
export type Reason =
  | Session['state']
  | 'server'
  | 'still'
  | 'atEnd'
  | 'nodes'
  | 'firstStep'
  | 'nothingRan'
  | 'forwardOnly'
  | 'back'
  | 'noWatchpoint'

type Can = {
  [K in keyof Capabilities]-?: K extends `can_${string}` ? K : never
}[keyof Capabilities]

/** Return why an action is unavailable in a session; undefined if it is available. */
export function whyNot(session: Session, can: Can, isConnected: boolean): Reason | undefined {
  if (!isConnected) return 'server'
  if (session.capabilities[can]) return undefined
  if (can === 'can_pause') return session.state === 'paused' ? 'still' : session.state
  if (session.state !== 'paused') return session.state
  switch (can) {
    case 'can_step':
      return 'atEnd'
    case 'can_previous_node':
      if (!session.capabilities.can_next_node) return session.capabilities.live ? 'nodes' : 'nothingRan'
      return session.step === 0 ? 'nothingRan' : 'forwardOnly'
    case 'can_next_node':
    case 'can_run_to_node':
      return session.capabilities.live ? 'nodes' : 'nothingRan'
    case 'can_step_back':
    case 'can_go_to_step':
      return session.step === 0 ? 'firstStep' : 'back'
    case 'can_recheck':
      return 'noWatchpoint'
    default:
      return 'paused'
  }
}

/** Return the last step that can be shown; null if it is not known. */
export function lastStep(session: Session): number | null {
  return session.total_steps ?? (session.capabilities.live ? (session.present_step ?? session.step) : null)
}
