import { Combobox, Modal, Skeleton, Text, TextInput, useCombobox } from '@mantine/core'
import { IconDatabase, IconSearch } from '~/parts/icons'
import { useEffect, useMemo, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession, useSessions } from '~/api/queries'
import { useDumps } from '~/panels/runs/queries'
import { partTexts } from '~/parts/texts'
import { StateBadge } from '~/parts/StateBadge'
import { ago, moment } from '~/parts/times'
import { useView } from '~/state/store'
import { choices, type Choice } from './choices'
import classes from './compare.module.css'
import { compareTexts } from './texts'

const MOST_SHOWN = 200

/** The dialog to choose the run to compare with. */
export function Chooser() {
  const { t } = useTranslation(compareTexts)
  const { t: part } = useTranslation(partTexts)
  const isOpen = useView((view) => view.dialog === 'compare' && view.run !== '')
  const set = useView((view) => view.set)
  const { data: session } = useSession()
  return (
    <Modal
      opened={isOpen}
      onClose={() => set({ dialog: 'none' })}
      title={t('chooseTitle', { name: session?.name ?? '…' })}
      size={640}
      closeButtonProps={{ 'aria-label': part('close') }}
    >
      <div data-testid="compare-chooser">
        <Text c="var(--quiet)" mb="xs">
          {t('chooseText')}
        </Text>
        <List />
      </div>
    </Modal>
  )
}

function List() {
  const { t } = useTranslation(compareTexts)
  const run = useView((view) => view.run)
  const set = useView((view) => view.set)
  const sessions = useSessions()
  const dumps = useDumps()
  const [words, setWords] = useState('')
  const combobox = useCombobox({ opened: true })
  const matches = useMemo(
    () => choices(sessions.data ?? [], dumps.data ?? [], run, words),
    [sessions.data, dumps.data, run, words],
  )
  const { selectFirstOption } = combobox
  useEffect(() => {
    selectFirstOption()
    // The list has changed.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [matches])
  const choose = (other: string) => set({ other, tab: 'compare', part: null, dialog: 'none' })
  const isRead = sessions.data !== undefined && !dumps.isPending
  return (
    <Combobox store={combobox} onOptionSubmit={choose}>
      <Combobox.EventsTarget>
        <TextInput
          data-autofocus
          aria-label={t('chooseFilter')}
          placeholder={t('chooseFilter')}
          leftSection={<IconSearch size={13} />}
          value={words}
          onChange={(event) => setWords(event.currentTarget.value)}
        />
      </Combobox.EventsTarget>
      <Combobox.Options className={classes['choices'] ?? ''} aria-label={t('chooseList')}>
        {matches.slice(0, MOST_SHOWN).map((choice) => (
          <ChoiceOption key={`${choice.session?.id ?? ''} ${choice.value}`} choice={choice} />
        ))}
        {matches.length > MOST_SHOWN && (
          <Combobox.Footer>{t('more', { count: matches.length - MOST_SHOWN })}</Combobox.Footer>
        )}
        {matches.length === 0 &&
          (isRead ? (
            <Combobox.Empty>{t(words ? 'chooseNoMatch' : 'chooseNone')}</Combobox.Empty>
          ) : (
            <Skeleton h={120} />
          ))}
      </Combobox.Options>
    </Combobox>
  )
}

function ChoiceOption({ choice }: { choice: Choice }) {
  const { t } = useTranslation(compareTexts)
  const { session, modified, problem } = choice
  return (
    <Combobox.Option
      value={choice.value}
      disabled={problem !== ''}
      className={classes['choice'] ?? ''}
      data-testid="compare-choice"
      data-value={choice.value}
    >
      <div className={classes['choiceName']}>
        <div title={choice.title}>{choice.title}</div>
        <small title={problem || choice.detail}>{problem || choice.detail}</small>
      </div>
      <span className={classes['choiceEnd']}>
        {modified !== null && <span title={moment(modified)}>{ago(modified)}</span>}
        {session ? (
          <StateBadge state={session.state} message={session.message} />
        ) : (
          <span className={classes['onDisk']} title={t('onDisk')}>
            <IconDatabase size={13} aria-label={t('onDisk')} role="img" />
          </span>
        )}
      </span>
    </Combobox.Option>
  )
}
