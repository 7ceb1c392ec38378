import { Modal, Skeleton } from '@mantine/core'
import { useEffect } from 'react'
import { useTranslation } from 'react-i18next'
import { useWatchpoints } from '~/api/queries'
import { useConditions } from '~/parts/Advice'
import { Failure } from '~/parts/Notice'
import { useView } from '~/state/store'
import { DialogForm } from './DialogForm'
import { draftOf, newDraft } from './draft'
import { watchpointsTexts } from './texts'
import { useWanted } from './watchNode'

/** The dialog for a new watchpoint, or to change one. */
export function WatchpointDialog() {
  const { t } = useTranslation(watchpointsTexts)
  const edited = useView((view) => view.edited)
  const set = useView((view) => view.set)
  const wanted = useWanted((state) => state.wanted)
  const { data: conditions, error } = useConditions()
  const { data: watchpoints } = useWatchpoints()
  const watchpoint = watchpoints?.find((one) => one.id === edited) ?? null
  // What was chosen for one watchpoint is not meant for the next.
  useEffect(() => () => useWanted.setState({ wanted: null }), [])
  const close = () => set({ dialog: 'none', edited: null })
  const first = conditions?.find((one) => one.id === 'tensor_overflow') ?? conditions?.[0]
  const draft = watchpoint ? draftOf(watchpoint) : first && newDraft(first, wanted)
  return (
    <Modal
      opened
      onClose={close}
      title={watchpoint ? t('dialogEdit', { id: watchpoint.id }) : t('dialogNew')}
      size={860}
      padding="md"
      closeButtonProps={{ 'aria-label': t('cancel') }}
      data-testid="watchpoint-dialog"
    >
      {error ? (
        <Failure error={error} />
      ) : conditions && draft && (edited === null || watchpoint) ? (
        <DialogForm
          key={edited ?? 'new'}
          conditions={conditions}
          watchpoint={watchpoint}
          initial={draft}
          close={close}
        />
      ) : (
        <Skeleton height={420} />
      )}
    </Modal>
  )
}
