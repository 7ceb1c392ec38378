import { useEffect } from 'react'
import { useOffered, type Action } from './actions'

/** Offer actions while the calling component is mounted; pass a new array only when an action changes. */
export function useActions(actions: Action[]): void {
  const { offer, withdraw } = useOffered.getState()
  useEffect(() => {
    offer(actions)
    return () => withdraw(actions.map((action) => action.id))
  }, [actions, offer, withdraw])
}
