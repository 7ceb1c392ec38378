import { Badge, Button, Group, Modal, Skeleton, Text } from '@mantine/core'
import { IconAlertTriangle, IconExclamationCircle } from '~/parts/icons'
import { useMutation, useQuery } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { change, get } from '~/api/client'
import { keys, path, useSession } from '~/api/queries'
import type { Session, Watchpoint } from '~/api/types'
import { showRefusal } from '~/parts/refusal'
import { useConditionWords } from '~/parts/conditionWords'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import classes from './dialogs.module.css'
import { dialogTexts } from './texts'

/** The dialog that offers the recommended watchpoints, once for a run, before anything is watched. */
export function Recommended() {
  const { data: session } = useSession()
  const run = useView((view) => view.run)
  return session?.id === run ? <RecommendedDialog key={run} session={session} /> : null
}

function RecommendedDialog({ session }: { session: Session }) {
  const { t } = useTranslation(dialogTexts)
  const run = session.id
  // Null: the user has not decided here; the dialog opens if nothing is watched yet.
  const [isRequested, ask] = useState<boolean | null>(null)
  const canAsk = !session.recommended_offered && session.capabilities.can_edit_watchpoints
  const isOpen = canAsk && (isRequested ?? session.watchpoints === 0)
  const { data: offered } = useQuery({
    queryKey: keys.graphs(run, 'recommended'),
    queryFn: ({ signal }) => get<Watchpoint[]>(path(run, '/watchpoints/recommended'), {}, signal),
    enabled: isOpen,
  })
  const { mutate: answer, isPending } = useMutation({
    mutationFn: (accept: boolean) => change('POST', path(run, '/watchpoints/recommended'), { accept }),
    onError: showRefusal,
  })
  useActions(
    useMemo(
      () =>
        canAsk
          ? [
              {
                id: 'watchpoints.recommended',
                label: t('action.recommended'),
                run: () => ask(true),
                group: t('group.watchpoints'),
              },
            ]
          : [],
      [canAsk, t],
    ),
  )
  // A user who compares two runs is not setting watchpoints.
  const isComparing = useView((view) => view.dialog === 'compare' || view.other !== '')
  // Without a suitable watchpoint there is nothing to offer.
  const isShown = isOpen && offered?.length !== 0 && (isRequested === true || !isComparing)
  return (
    <Modal
      opened={isShown}
      onClose={() => ask(false)}
      title={t('recommended')}
      size={680}
      closeButtonProps={{ 'aria-label': t('later') }}
    >
      <div data-testid="recommended">
        <Text c="var(--quiet)" mb="sm">
          {t('recommendedText')}
        </Text>
        {/* Long lists scroll, with the keyboard too. */}
        <ul className={classes['offered']} tabIndex={0} aria-label={t('group.watchpoints')}>
          {offered?.map((watchpoint) => <Offer key={watchpoint.id} watchpoint={watchpoint} />) ?? (
            <Skeleton h={320} />
          )}
        </ul>
        <Group justify="flex-end" mt="md">
          <Button variant="subtle" color="gray" onClick={() => ask(false)}>
            {t('later')}
          </Button>
          <Button variant="default" loading={isPending} onClick={() => answer(false)}>
            {t('without')}
          </Button>
          <Button loading={isPending} disabled={!offered} data-autofocus onClick={() => answer(true)}>
            {t('use', { count: offered?.length ?? 0 })}
          </Button>
        </Group>
      </div>
    </Modal>
  )
}

function Offer({ watchpoint }: { watchpoint: Watchpoint }) {
  const { t } = useTranslation(dialogTexts)
  const words = useConditionWords()
  const isError = watchpoint.severity === 'error'
  const Icon = isError ? IconExclamationCircle : IconAlertTriangle
  return (
    <li data-testid="recommended-watchpoint" data-condition={watchpoint.condition}>
      <Icon size={15} color={isError ? 'var(--hit)' : 'var(--past)'} aria-label={t(watchpoint.severity)} />
      <Badge variant="default" size="sm" radius="sm" className={classes['abbreviation'] ?? ''}>
        {watchpoint.abbreviation}
      </Badge>
      <span>{words.sentence(watchpoint)}</span>
      <span className={classes['nodes']}>
        {watchpoint.nodes > 0 ? t('nodes', { count: watchpoint.nodes }) : t('nodesLater')}
      </span>
    </li>
  )
}
