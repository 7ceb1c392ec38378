import { useEffect } from 'react'
import { useOffered, type Action } from './actions'

/** Offer actions while the component that calls is there; give it a new array only when something of it is new. */
export function useActions(actions: Action[]): void {
  const { offer, withdraw } = useOffered.getState()
  useEffect(() => {
    offer(actions)
    return () => withdraw(actions.map((one) => one.id))
  }, [actions, offer, withdraw])
}
