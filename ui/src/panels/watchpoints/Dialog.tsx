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
import { useWatchTarget } from './watchNode'

/** The dialog that creates or edits a watchpoint. */
export function WatchpointDialog() {
  const { t } = useTranslation(watchpointsTexts)
  const edited = useView((view) => view.edited)
  const set = useView((view) => view.set)
  const target = useWatchTarget((state) => state.target)
  const { data: conditions, error } = useConditions()
  const { data: watchpoints } = useWatchpoints()
  const watchpoint = watchpoints?.find((record) => record.id === edited) ?? null
  // The target of one watchpoint does not apply to the next.
  useEffect(() => () => useWatchTarget.setState({ target: null }), [])
  const close = () => set({ dialog: 'none', edited: null })
  const first = conditions?.find(({ id }) => id === 'tensor_overflow') ?? conditions?.[0]
  const draft = watchpoint ? draftOf(watchpoint) : first && newDraft(first, target)
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
