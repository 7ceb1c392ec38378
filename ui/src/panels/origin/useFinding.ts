import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import { useOrigins, useSession } from '~/api/queries'
import type { Action } from '~/state/actions'
import { useActions } from '~/state/useActions'
import { originTexts } from './texts'
import { tell } from '~/state/messages'

/** Offer the search for origins while nothing hit. It is not automatic, as it takes a while in a large dump. */
export function useFinding(): void {
  const { t } = useTranslation(originTexts)
  const { data: session } = useSession()
  const { data: origins, refetch } = useOrigins()
  const canFind = session?.capabilities.has_origin === true && session.hits === 0 && !origins?.length
  const actions = useMemo((): Action[] => {
    if (!canFind) return []
    const find = async () => {
      const { data, error } = await refetch()
      if (error) tell(t('failed', { message: error.message }), 'error', 'origin.find')
      else if (data?.length === 0) tell(t('nothingFound'), 'info', 'origin.find')
    }
    return [{ id: 'origin.find', label: t('find'), keys: 'alt+F', group: t('group'), run: () => void find() }]
  }, [canFind, refetch, t])
  useActions(actions)
}
